"""The files of the ledger: how a commit publishes them, which of them hold valid rows, and how a reader opens them.

A *fragment* is the files of one commit, under one name in the folder of every table: `trainings/<name>.parquet`,
`curves/<name>.parquet`, ... The file in `trainings` appears last and commits the fragment. A merged fragment lists in
its metadata the names that it `replaces`. The folder `trainings` is therefore the manifest: **a name counts if it is in
`trainings` and no file there replaces it**. The next writer removes all other files. Names are never reused, so a
replaced name cannot return.

A name ends with the digest of the file in `trainings`, and that file holds the digests of the other tables' files. A
name therefore determines every byte of its fragment. Readers also verify checksums of pages.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from attnsweep.orchestrator.ledger.schema import BASE_COLUMNS, PARAMETER_TYPES, SCHEMA_VERSION, clashes, misfits
from attnsweep.orchestrator.storage.place import Place, at_once, digest
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.workloads.errors import UserError

TABLES = ("curves", "heads", "trainings")
"""The names of the tables, in the order in which a commit writes their files. Writing the last file completes the
commit."""

MERGED = "merged-"
"""The beginning of the names of merged fragments. No other fragment (the files of one commit) has such a name."""

ROW_GROUP_ROWS = 131_072
"""Number of rows in a row group of a Parquet file: few enough for a query to skip the row groups of trials that it does
not need.
"""

_NAMES, _DIGESTS = TypeAdapter(tuple[str, ...]), TypeAdapter(dict[str, str])

_PARQUET = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)


class DamagedFileError(UserError):
    """A file of the ledger is missing, or differs from what was written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stamp:
    """The metadata in each file of the ledger.

    Attributes:
        replaces: Fragments whose rows this fragment holds too.
        digests: Digests of the fragment's other files, by table. Only in `trainings`.
        curves_every: 1 if the curves hold every probe; k if they hold every k-th probe besides the first and the last.
    """

    spec_sha256: str
    replaces: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    curves_every: int = 1

    def metadata(self) -> dict[str, str]:
        return {
            "schema_version": str(SCHEMA_VERSION),
            "spec_sha256": self.spec_sha256,
            "replaces": json.dumps(self.replaces),
            "digests": json.dumps(self.digests),
            **({"curves_every": str(self.curves_every)} if self.curves_every > 1 else {}),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenFile:
    """A Parquet file of the ledger. On a local disk its rows stay readable even after a compaction has removed it."""

    fragment: ds.ParquetFileFragment
    rows: int
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All results that had been committed by a certain moment.

    Attributes:
        files: Opened files by table, then by name. Every table that the sweep has holds the same names.
        without_rows: The tables that have no file yet, each with its columns.
    """

    files: Mapping[str, Mapping[str, OpenFile]]
    without_rows: Mapping[str, pa.Schema] = field(default_factory=lambda: BASE_COLUMNS)

    def dataset(self, table: str) -> ds.Dataset:
        fragments = [file.fragment for file in self.files.get(table, {}).values()]
        schemas = [fragment.physical_schema.remove_metadata() for fragment in fragments]
        return ds.FileSystemDataset(fragments, pa.unify_schemas(schemas or [self.without_rows[table]]), _PARQUET)

    def by_thinning(self) -> dict[int, list[str]]:
        """The names of the fragments by the k of their curves."""
        names: dict[int, list[str]] = {}
        for name, file in self.files["trainings"].items():
            names.setdefault(file.stamp.curves_every, []).append(name)
        return names

    def only(self, names: Iterable[str]) -> "Snapshot":
        chosen = set(names)
        return replace(
            self,
            files={
                table: {name: file for name, file in files.items() if name in chosen}
                for table, files in self.files.items()
            },
        )

    def tables(self) -> dict[str, ds.Dataset]:
        return {table: self.dataset(table) for table in TABLES}

    def rows(self) -> dict[str, int]:
        return {name: file.rows for name, file in self.files["trainings"].items()}

    def rows_of_all_tables(self) -> dict[str, int]:
        return {name: sum(files[name].rows for files in self.files.values()) for name in self.files["trainings"]}


def require_ledger(place: Place) -> None:
    """Raises UserError if a place holds no sweep.

    A directory with nothing but `sweep.json` is a sweep, whose run was killed at the start.
    """
    # `SweepDirectory` is imported only here, because it imports Optuna, which reading rows does not need.
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

    if not place.has_folder("trainings") and not SweepDirectory.is_there(place):
        raise UserError(
            "DIR",
            given=str(place),
            expected="a sweep directory, which contains a folder named trainings",
            fix="give the directory that `attnsweep run` printed",
        )


def open_snapshot(place: Place) -> Snapshot:
    """Opens all files that hold valid rows. Works while another process writes to the ledger.

    Raises:
        UserError: For a file that is missing or cannot be read.
    """
    while True:
        names = fragment_names(place)
        try:
            trainings = open_files(place, "trainings", names)
            counting = counting_names(trainings)
            files = {table: open_files(place, table, counting) for table in TABLES[:-1] if place.has_folder(table)}
        except (FileNotFoundError, UserError) as error:
            # If another process removes files during the read, they may look damaged. In this case the folder is listed
            # again.
            if is_overtaken(place, names):
                continue
            if isinstance(error, FileNotFoundError):
                raise damaged(
                    place, error.filename, "a missing file: its folder lists the file, but it cannot be opened"
                ) from error
            raise
        # If a compaction (a merge of files into one) runs while the folder is listed, the list may lack both the old
        # files and the new one. Then the folder is listed again. If a commit has only added files, the list is still
        # valid.
        if not is_overtaken(place, names):
            return _snapshot_of(place, {**files, "trainings": {name: trainings[name] for name in counting}})


def _snapshot_of(place: Place, files: Mapping[str, Mapping[str, OpenFile]]) -> Snapshot:
    for table, opened in files.items():
        for name, wrong in clashing(opened).items():
            raise damaged(place, place.file_name(table, name), wrong)
    return Snapshot(files) if files["trainings"] else Snapshot(files, _declared_columns(place))


def _declared_columns(place: Place) -> Mapping[str, pa.Schema]:
    # `SweepDirectory` and the dimensions are imported only here, because they import Optuna, which reading rows does
    # not need.
    from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE, SweepDirectory
    from attnsweep.search_spaces.dimensions import Categorical, Conditional, Derived, Float, Int

    def values(dimension: object) -> Iterator[object]:
        match dimension:
            case Float(low=low) | Int(low=low):
                yield low
            case Categorical(choices=choices):
                yield from choices
            case Conditional(then=then, otherwise=otherwise):
                yield from values(then)
                yield from values(otherwise)
            case Derived():
                pass
            case _:
                yield dimension

    if not place.has_text(SWEEP_FILE):
        return BASE_COLUMNS
    directory = SweepDirectory.open(place)
    trainings = BASE_COLUMNS["trainings"]
    for name, dimension in {**directory.defaults, **directory.spec.parameters()}.items():
        if f"param_{name}" not in trainings.names:
            # The column of a parameter gets the type of the parameter's first value that is not null. If all values are
            # null, it gets the type double.
            kinds = (type(value) for value in values(dimension) if value is not None)
            trainings = trainings.append(pa.field(f"param_{name}", PARAMETER_TYPES[next(kinds, float)]))
    return {**BASE_COLUMNS, "trainings": trainings}


def clashing(files: Mapping[str, OpenFile]) -> dict[str, str]:
    """Returns the files that have a column of another type than earlier ones, each with the difference."""
    return clashes({name: file.fragment.physical_schema for name, file in files.items()})


def fragment_names(place: Place) -> list[str]:
    """All names in order, including those that were merged into others but not removed yet."""
    return sorted(place.names("trainings"))


def is_overtaken(place: Place, names: Iterable[str]) -> bool:
    """Whether files were merged or removed since `names` were listed."""
    return has_overtaken(fragment_names(place), names)


def has_overtaken(later_names: Iterable[str], names: Iterable[str]) -> bool:
    """Whether files were merged or removed between two listings."""
    later = set(later_names)
    return not later.issuperset(names) or any(name.startswith(MERGED) for name in later.difference(names))


def open_files(place: Place, table: str, names: Iterable[str]) -> dict[str, OpenFile]:
    """Opens files of one table, by name.

    Raises:
        FileNotFoundError: If a compaction has removed a file.
        UserError: For a file that cannot be read.
    """
    names = list(names)
    return dict(zip(names, at_once(partial(open_file, place, table), names, place.n_at_once), strict=True))


def open_file(place: Place, table: str, name: str) -> OpenFile:
    """Opens a file and reads its footer.

    Raises:
        FileNotFoundError: If a compaction has removed it since it was listed.
        DamagedFileError: If the file is damaged.
        UserError: If a newer version of attnsweep wrote it, or it cannot be read now.
    """
    path = place.file_name(table, name)
    try:
        handle = place.open_file(table, name)
        with place.answering(path):
            fragment = _PARQUET.make_fragment(handle)
            metadata = fragment.metadata.metadata or {}
            wrong = "; ".join(misfits(table, fragment.physical_schema))
        version = int(metadata[b"schema_version"])
        stamp = Stamp(
            spec_sha256=metadata[b"spec_sha256"].decode(),
            replaces=_NAMES.validate_json(metadata[b"replaces"]),
            digests=_DIGESTS.validate_json(metadata[b"digests"]),
            curves_every=int(metadata.get(b"curves_every", b"1")),
        )
    except FileNotFoundError as gone:
        raise FileNotFoundError(gone.errno, gone.strerror, path) from gone
    except KeyError as lacking:
        what = f"a damaged file: its metadata lacks the entry {lacking.args[0].decode()}"
        raise damaged(place, path, what) from lacking
    except ValidationError as damage:
        raise damaged(
            place, path, "a damaged file: the entry `replaces` or `digests` of its metadata cannot be parsed"
        ) from damage
    except (OSError, ValueError) as damage:
        raise damaged(place, path, reason(damage)) from damage
    if version > SCHEMA_VERSION:
        raise UserError(
            path,
            given=f"a file with schema_version {version}",
            expected=f"a schema_version up to {SCHEMA_VERSION}",
            fix="read the file with the newer version of attnsweep that wrote it",
        )
    if name in stamp.replaces:
        raise damaged(place, path, "a damaged file: its metadata lists the file itself among those that it replaces")
    if wrong:
        raise damaged(place, path, wrong)
    return OpenFile(fragment=fragment, rows=fragment.metadata.num_rows, stamp=stamp)


def counting_names(trainings: Mapping[str, OpenFile]) -> list[str]:
    """The names in `trainings` that no file there replaces."""
    replaced = {name for file in trainings.values() for name in file.stamp.replaces}
    return sorted(set(trainings) - replaced)


def publish(
    place: Place, stem: str, contents: Mapping[str, tuple[pa.Schema, Iterable[pa.RecordBatch]]], stamp: Stamp
) -> str:
    """Writes the files of one commit, all of them before the first one is renamed. Returns the fragment's name.

    Args:
        stem: The beginning of the fragment's name.
        contents: Schema and batches by table; `trainings` must be among them.
    """
    digests: dict[str, str] = {}

    def write(table: str, path: Path) -> None:
        schema, batches = contents[table]
        # The rows of `trainings` are written last, because their file contains the digests of the files of all other
        # tables.
        metadata = replace(stamp, digests=digests).metadata() if table == "trainings" else stamp.metadata()
        # Hardly any two losses are equal, so Parquet's dictionary encoding would not make them smaller. But the bytes
        # that hold their exponents do repeat. So the first bytes of all numbers are stored together, then all second
        # bytes, and so on, which makes curves a sixth smaller.
        words = [field.name for field in schema if pa.types.is_dictionary(field.type)]
        numbers = [field.name for field in schema if pa.types.is_floating(field.type)]
        with pq.ParquetWriter(
            path,
            schema.with_metadata(metadata),
            compression="zstd",
            use_dictionary=words,
            use_byte_stream_split=numbers,
            write_page_checksum=True,
        ) as writer:
            for batch in batches:
                writer.write_batch(batch, row_group_size=ROW_GROUP_ROWS)
        with path.open("rb") as file:
            digests[table] = digest(file)

    return place.publish(stem, {table: partial(write, table) for table in TABLES if table in contents})


def reason(damage: Exception) -> str:
    """An error's message in one line, without `<Buffer>`, which pyarrow puts in place of an open file's name."""
    words = getattr(damage, "strerror", None) or next(iter(str(damage).splitlines()), type(damage).__name__)
    return str(words).rpartition("'<Buffer>': ")[2]


def damaged(place: Place, path: str, given: str) -> DamagedFileError:
    return DamagedFileError(
        path,
        given=given,
        expected="a Parquet file that attnsweep wrote",
        fix=f"restore it; or: attnsweep resume {as_argument(place)}, which sets it aside and trains it again",
    )
