"""What a reader sees of a ledger: the files that count at one moment, all opened.

If a compaction removes files meanwhile, all are opened anew. An opened file stays readable, whatever happens later.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from attnsweep.orchestrator.ledger.fragments import (
    MERGED,
    PARQUET,
    TABLES,
    DamagedFileError,
    OpenFile,
    damaged,
    file_of,
    open_file,
)
from attnsweep.orchestrator.ledger.schema import BASE_COLUMNS, PARAMETER_TYPES, clashes
from attnsweep.orchestrator.storage.copies import name_of
from attnsweep.orchestrator.storage.files import is_damage, parquet_names, unfinished
from attnsweep.workloads.errors import UserError


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The results that were committed when it was taken.

    Attributes:
        files: Opened files by table, then by name. Every table that the sweep has holds the same names.
        columns_if_empty: The columns of a table that has no file yet.
    """

    place: Path
    files: Mapping[str, Mapping[str, OpenFile]]
    columns_if_empty: Mapping[str, pa.Schema] = field(default_factory=lambda: BASE_COLUMNS)

    def dataset(self, table: str) -> ds.Dataset:
        fragments = [file.fragment for file in self.files.get(table, {}).values()]
        schemas = [fragment.physical_schema.remove_metadata() for fragment in fragments]
        return ds.FileSystemDataset(fragments, pa.unify_schemas(schemas or [self.columns_if_empty[table]]), PARQUET)

    def read(self, table: str, **selection: Any) -> pa.Table:
        """Takes the arguments of `Dataset.to_table`. Raises UserError for a damaged file."""
        with naming_damage([self.place]):
            return self.dataset(table).to_table(**selection)

    def tables(self) -> dict[str, ds.Dataset]:
        return {table: self.dataset(table) for table in TABLES}

    def only(self, names: Iterable[str]) -> "Snapshot":
        chosen = set(names)
        files = {
            table: {name: file for name, file in files.items() if name in chosen} for table, files in self.files.items()
        }
        return replace(self, files=files)

    def by_thinning(self) -> dict[int, list[str]]:
        """The names of the fragments, by `curves_every`."""
        names: dict[int, list[str]] = {}
        for name, file in self.files["trainings"].items():
            names.setdefault(file.stamp.curves_every, []).append(name)
        return names

    def rows(self) -> dict[str, int]:
        """The number of rows of all tables together, by fragment."""
        return {name: sum(files[name].rows for files in self.files.values()) for name in self.files["trainings"]}

    def leftovers(self) -> list[Path]:
        """All files of fragments that are not in the snapshot, and temporary ones."""
        left = [path for table in TABLES for path in unfinished(self.place / table)]
        for table in TABLES:
            others = set(parquet_names(self.place / table)).difference(self.files["trainings"])
            left += [file_of(self.place, table, name) for name in others]
        return left


@dataclass(frozen=True, slots=True)
class Examination:
    """`damaged`: the error of the first damaged file of each fragment that is not sound."""

    sound: Snapshot
    damaged: Mapping[str, DamagedFileError]


def require_ledger(place: Path) -> None:
    """Raises UserError if a place holds no sweep. A directory with nothing but `sweep.json` is one."""
    if not (place / "trainings").is_dir() and not (place / "sweep.json").is_file():
        expected = "a sweep directory, with a folder `trainings` or a file sweep.json"
        fix = "give the directory that `attnsweep run` printed"
        raise UserError("DIR", given=name_of(place), expected=expected, fix=fix)


def open_snapshot(place: Path, tables: Collection[str] = TABLES) -> Snapshot:
    """Opens all files of `trainings` and `tables` that count, also while another process writes; others stay empty.

    Raises:
        UserError: For a file that is missing or damaged; OSError as `examine`.
    """
    found = _undisturbed(place, lambda names: _opened(place, tables, names, checks_digests=False))
    for fault in found.damaged.values():
        raise fault
    if found.sound.files["trainings"]:
        return found.sound
    return replace(found.sound, columns_if_empty=_columns_of_spec(place))


def examine(place: Path) -> Examination:
    """Reads every byte of all files that count.

    Raises:
        UserError: If a newer version has written a file.
        OSError: If a file cannot be read now.
    """
    return _undisturbed(place, lambda names: _opened(place, TABLES, names, checks_digests=True))


@contextmanager
def naming_damage(places: Sequence[Path]) -> Iterator[None]:
    """If Arrow or DuckDB cannot read rows, the error names the damaged file."""
    try:
        yield
    except (OSError, pa.ArrowException, duckdb.InvalidInputException) as error:
        if not is_damage(error):
            raise
        for fault in (fault for place in places for fault in examine(place).damaged.values()):
            raise fault from error
        raise


def fragment_names(place: Path) -> list[str]:
    """All names in order, including those that were merged into others but not removed yet."""
    return sorted(parquet_names(place / "trainings"))


def _undisturbed(place: Path, open_named: Callable[[Sequence[str]], Examination]) -> Examination:
    while True:
        names = fragment_names(place)
        found = open_named(names)
        names_after = set(fragment_names(place))
        # A listing during a compaction may lack both the old files and the new one. A commit only adds files.
        if names_after.issuperset(names) and not any(name.startswith(MERGED) for name in names_after.difference(names)):
            return found


def _opened(place: Path, tables: Collection[str], names: Sequence[str], *, checks_digests: bool) -> Examination:
    """Opens `trainings` first: its files have the digests of other tables' files, and the names that they replace."""
    faults: dict[str, DamagedFileError] = {}  # the first of each fragment

    def opened(table: str, digests: Mapping[str, str]) -> dict[str, OpenFile]:
        files = {}
        for name, known_digest in digests.items():
            try:
                files[name] = open_file(file_of(place, table, name), known_digest if checks_digests else None)
            except DamagedFileError as fault:
                faults.setdefault(name, fault)
        return files

    trainings = opened("trainings", {name: name.rpartition("-")[2] for name in names})
    replaced = {name for file in trainings.values() for name in file.stamp.replaces}  # neither rows nor damage count
    counting = [name for name in trainings if name not in replaced]
    files = {"trainings": trainings}
    for table in TABLES:
        if table in tables and table != "trainings" and (place / table).is_dir():
            files[table] = opened(table, {name: trainings[name].stamp.digests.get(table, "") for name in counting})
    for table, each in files.items():
        schemas = {name: each[name].fragment.physical_schema for name in counting if name in each}
        for name, wrong in clashes(schemas).items():
            faults.setdefault(name, damaged(file_of(place, table, name), wrong))
    sound = [name for name in counting if name not in faults]
    return Examination(
        Snapshot(place, {table: {name: each[name] for name in sound} for table, each in files.items()}),
        {name: fault for name, fault in faults.items() if name not in replaced},
    )


def _columns_of_spec(place: Path) -> Mapping[str, pa.Schema]:
    # Imported here: a quarter of a second, which reading rows does not need.
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

    if not (place / SWEEP_FILE).is_file():
        return BASE_COLUMNS
    directory = SweepDirectory.open(place)
    trainings = BASE_COLUMNS["trainings"]
    for name, dimension in {**directory.defaults, **directory.spec.parameters()}.items():
        if f"param_{name}" not in trainings.names:
            kinds = (type(value) for value in values(dimension) if value is not None)  # without any: double
            trainings = trainings.append(pa.field(f"param_{name}", PARAMETER_TYPES[next(kinds, float)]))
    return {**BASE_COLUMNS, "trainings": trainings}
