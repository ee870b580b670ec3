"""The files of the ledger: how a commit publishes them, and how one is opened.

A *fragment* is the files of one commit, under one name in the folder of every table: `trainings/<name>.parquet`,
`curves/<name>.parquet`, ... The file in `trainings` appears last and commits the fragment. A merged fragment lists in
its metadata the names that it `replaces`. The folder `trainings` is therefore the manifest: **a name counts if it is in
`trainings` and no file there replaces it**. The next writer removes all other files. Names are never reused, so a
replaced name cannot return.

A name ends with the digest of the file in `trainings`, and that file holds the digests of the other tables' files. A
name therefore determines every byte of its fragment. Readers also verify checksums of pages.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from attnsweep.orchestrator.ledger.schema import SCHEMA_VERSION, misfits
from attnsweep.orchestrator.storage import files
from attnsweep.orchestrator.storage.files import digest
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.workloads.errors import UserError

TABLES = ("curves", "heads", "trainings")
"""In the order in which a commit writes their files. The last one completes it."""
MERGED = "merged-"
"""Merged fragments, and no others, have names that begin with this."""
ROW_GROUP_ROWS = 131_072
"""Few enough for a query to skip the row groups of trials that it does not need."""

_NAMES, _DIGESTS = TypeAdapter(tuple[str, ...]), TypeAdapter(dict[str, str])

# Reading ahead would take a gigabyte of memory for a million trainings.
PARQUET = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True, pre_buffer=False)
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
    """A Parquet file of the ledger. Its rows stay readable even after a compaction has removed it."""

    fragment: ds.ParquetFileFragment
    rows: int
    stamp: Stamp


def file_of(place: Path, table: str, name: str) -> Path:
    return place / table / f"{name}.parquet"


def open_file(path: Path, known_digest: str | None = None) -> OpenFile:
    """Opens a file and reads its footer; with `known_digest` it checks all bytes.

    Raises:
        DamagedFileError: If it is missing or damaged.
        UserError: If a newer version of attnsweep wrote it.
        OSError: If it cannot be read now.
    """
    try:
        handle = files.open_file(path)
        with files.naming(path):
            if known_digest is not None and digest(handle) != known_digest:
                raise damaged(path, "a file that does not match its checksum")
            fragment = PARQUET.make_fragment(handle)
            metadata = fragment.metadata.metadata or {}
            wrong = "; ".join(misfits(path.parent.name, fragment.physical_schema))
        version = int(metadata[b"schema_version"])
        stamp = Stamp(
            spec_sha256=metadata[b"spec_sha256"].decode(),
            replaces=_NAMES.validate_json(metadata[b"replaces"]),
            digests=_DIGESTS.validate_json(metadata[b"digests"]),
            curves_every=int(metadata.get(b"curves_every", b"1")),
        )
    except KeyError as lacking:
        raise damaged(path, f"a file whose metadata lacks the entry {lacking.args[0].decode()}") from lacking
    except ValidationError as damage:
        raise damaged(path, "a file whose entry `replaces` or `digests` cannot be parsed") from damage
    except (OSError, ValueError) as damage:
        if not files.is_damage(damage):
            raise
        raise damaged(path, reason(damage)) from damage
    if version > SCHEMA_VERSION:
        expected = f"a schema_version up to {SCHEMA_VERSION}"
        fix = "read the file with the newer version of attnsweep that wrote it"
        raise UserError(str(path), given=f"a file with schema_version {version}", expected=expected, fix=fix)
    if path.stem in stamp.replaces:
        raise damaged(path, "a file that lists itself among those that it replaces")
    if wrong:
        raise damaged(path, wrong)
    return OpenFile(fragment=fragment, rows=fragment.metadata.num_rows, stamp=stamp)


def publish(
    place: Path, stem: str, contents: Mapping[str, tuple[pa.Schema, Iterable[pa.RecordBatch]]], stamp: Stamp
) -> str:
    """Writes the files of one commit, all of them before the first one is renamed.

    Args:
        contents: Schema and batches by table; `trainings` must be among them.

    Returns:
        The fragment's name, which begins with `stem`.
    """
    digests: dict[str, str] = {}

    def write(table: str, path: Path) -> None:
        schema, batches = contents[table]
        metadata = replace(stamp, digests=digests).metadata() if table == "trainings" else stamp.metadata()
        # Hardly any two losses are equal, so a dictionary would not make them smaller; but the bytes of their exponents
        # repeat. All first bytes are stored together, then all second ones, ...: curves become a sixth smaller.
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

    return files.publish(place, stem, {table: partial(write, table) for table in TABLES if table in contents})


def reason(damage: Exception) -> str:
    """An error's message in one line, without `<Buffer>`, which pyarrow puts in place of an open file's name."""
    words = getattr(damage, "strerror", None) or next(iter(str(damage).splitlines()), type(damage).__name__)
    return str(words).rpartition("'<Buffer>': ")[2]


def damaged(path: Path, given: str) -> DamagedFileError:
    fix = f"restore it; or: attnsweep resume {as_argument(path.parent.parent)}, which sets it aside and trains it again"
    return DamagedFileError(str(path), given=given, expected="a Parquet file that attnsweep wrote", fix=fix)
