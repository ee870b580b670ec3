"""Merges several sweeps of one workload into one directory for analysis. `open_sweep` merges them in memory instead."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.analysis.rates.bins import dimension_of, values_of
from attnsweep.orchestrator.ledger.compaction import sorted_batches
from attnsweep.orchestrator.ledger.fragments import TABLES, Snapshot, Stamp, clashing, open_snapshot, publish
from attnsweep.orchestrator.ledger.verification import refuse_doubles
from attnsweep.orchestrator.storage.annotation import Annotation
from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.storage.place_names import PlaceName, as_argument, place_of
from attnsweep.orchestrator.storage.sources import (
    TRIALS_APART,
    CutShortError,
    Source,
    refuse_cut_short,
    refuse_merged,
    source_file,
)
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.dimensions import Categorical, Dimension
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError

_MUST_AGREE = ("replicates", "objective", "constraints", "sampler", "pruner", "certified_share")
"""Fields of the spec on which answers depend; sweeps that differ in one of these are not merged."""


def merge_sweeps(out: PlaceName, where: Sequence[PlaceName]) -> SweepDirectory:
    """Copies the rows of several finished sweeps (at least two) into a new directory `out`, which can be analysed like
    one sweep. The original sweeps are not changed.

    Trials are numbered as `open_sweep` numbers them, so all answers are the same; the column `sweep` names the sweep of
    a row. The space has the parameters that vary in any of the sweeps, or between them.

    The file `course.json`, which says that the merge is finished, is written last. Until then all readers refuse the
    directory. If a merge was interrupted, the same call starts it anew.

    Raises:
        UserError: If the sweeps are of different workloads, not finished or themselves merged, if a trial's number is
            too large, if they differ in a field that `_MUST_AGREE` lists or in the type of a column, or if `out` cannot
            be created.
    """
    if len(where) < 2:
        raise UserError(
            "DIR...",
            given=f"{len(where)} sweep",
            expected="at least two sweeps",
            fix="name all sweeps that are to be merged",
        )
    begun = _begun(out)
    data = SweepData.open(*where)
    _check(data.directories)
    _check_outside(place_of(out, "OUT"), data.directories)
    snapshots = [open_snapshot(sweep.place) for sweep in data.directories]
    _check_columns(data.directories, snapshots)
    for sweep, snapshot in zip(data.directories, snapshots, strict=True):
        refuse_doubles(sweep.place, snapshot)
    with data.reading() as connection:
        spec = _merged_spec(data, connection)
    sources = tuple(
        Source(
            sweep=sweep.sweep,
            place=sweep.place.full_name,
            spec_sha256=sweep.spec_sha256,
            first_trial=number * TRIALS_APART,
            n_trainings=sum(snapshot.rows().values()),
        )
        for number, (sweep, snapshot) in enumerate(zip(data.directories, snapshots, strict=True))
    )
    if begun is not None and begun.sources != sources:
        refuse_cut_short(begun.place, begun.sources)
    note = "merged from " + ", ".join(sweep.sweep for sweep in data.directories)
    directory = begun or SweepDirectory.create(
        out, spec, _shared_defaults(data.directories, spec), annotation=Annotation(note=note), sources=sources
    )
    with closing(directory.place.lock("merge")):
        # Another process may have completed the merge while this process waited for the lock.
        if directory.finished:
            SweepDirectory.check_new(out, "OUT")
        _remove_rows(directory.place)
        environments = {name: env for sweep in data.directories for name, env in sweep.environments.items()}
        directory.record_as(directory.but(environments=environments))
        for sweep in data.directories:
            directory.place.put_text(source_file(sweep.sweep), sweep.record())
        _publish(directory, data.directories, snapshots)
        directory.record_run(finished=True, seconds=sum(sweep.seconds_spent for sweep in data.directories))
    return directory


def _begun(out: PlaceName) -> SweepDirectory | None:
    """Returns the directory `out` if an earlier merge of sweeps into it was interrupted, so that the merge can be
    completed; `None` if it is new. Raises a `UserError` if it holds anything else."""
    try:
        SweepDirectory.open(out)
    except CutShortError:
        return SweepDirectory.open_begun(out)
    except StoreError:
        raise
    except UserError:
        pass
    SweepDirectory.check_new(out, "OUT")
    return None


def _remove_rows(place: Place) -> None:
    """Removes from a merged sweep's directory all files of the ledger's tables, which an interrupted merge has left
    behind."""
    for table in TABLES:
        place.remove(table, [*place.unfinished(table), *(f"{name}.parquet" for name in place.names(table))])


def _check_outside(out: Place, directories: Sequence[SweepDirectory]) -> None:
    inside = next((sweep.place for sweep in directories if out.full_name.startswith(f"{sweep.place.full_name}/")), None)
    if inside is not None:
        raise UserError(
            "OUT",
            given=str(out),
            expected=f"a directory outside the sweep {inside}",
            fix="name another directory as OUT",
        )


def _check(directories: Sequence[SweepDirectory]) -> None:
    first = directories[0]
    for sweep in directories:
        refuse_merged(sweep.place, sweep.sources)
        if not sweep.finished:
            raise UserError(
                str(sweep.place),
                given="an unfinished sweep",
                expected="finished sweeps",
                fix=f"finish this sweep with: attnsweep resume {as_argument(sweep.place)}; or read all sweeps with"
                " open_sweep",
            )
        if sweep.code != first.code:
            files = ", ".join(sweep.code)
            raise UserError(
                str(sweep.place),
                given=f"code files that differ from those of the sweep {first.place}: {files}",
                expected="sweeps whose workloads have the same code",
                fix="compare the two sweeps with: attnsweep compare A B",
            )
        for name in _MUST_AGREE:
            if getattr(sweep.spec, name) != getattr(first.spec, name):
                raise UserError(
                    str(sweep.place),
                    given=f"a sweep with {name}={getattr(sweep.spec, name)}",
                    expected=f"the value {getattr(first.spec, name)}, as in the first sweep, {first.place}",
                    fix="read both sweeps with open_sweep, which applies the settings of each sweep to its own trials",
                )


def _check_columns(directories: Sequence[SweepDirectory], snapshots: Sequence[Snapshot]) -> None:
    for table in TABLES:
        opened = {
            str(sweep.place): next(iter(files.values()))
            for sweep, snapshot in zip(directories, snapshots, strict=True)
            if (files := snapshot.files.get(table))
        }
        for place, wrong in clashing(opened).items():
            raise UserError(
                place,
                given=wrong,
                expected=f"the same columns as in the first sweep, {directories[0].place}",
                fix="merge only sweeps that were run with the same version of attnsweep",
            )


def _merged_spec(data: SweepData, connection: duckdb.DuckDBPyConnection) -> Sweep:
    specs = [sweep.spec for sweep in data.directories]
    names = dict.fromkeys([*(name for spec in specs for name in spec.parameters()), *data.differing(connection)])
    space = {name: _dimension(specs, connection, name) for name in names}
    name = specs[0].name if len({spec.name for spec in specs}) == 1 else "merged"
    trials, description = sum(spec.trials for spec in specs), f"{len(specs)} sweeps, merged for analysis"
    return specs[0].but(name=name, space=space, trials=trials, seconds=None, storage=None, description=description)


def _dimension(specs: Sequence[Sweep], connection: duckdb.DuckDBPyConnection, name: str) -> Dimension:
    stated = [spec.parameters()[name] for spec in specs if name in spec.parameters()]
    if len(stated) == len(specs) and all(dimension == stated[0] for dimension in stated):
        return stated[0]
    dimension, _ = dimension_of(specs, name, values_of(connection, name))
    if isinstance(dimension, Categorical) and len(dimension.choices) == 1:
        return dimension.choices[0]
    return stated[0] if dimension is None else dimension


def _shared_defaults(directories: Sequence[SweepDirectory], spec: Sweep) -> dict[str, bool | int | float | str | None]:
    first, *others = (sweep.defaults for sweep in directories)
    return {
        name: value
        for name, value in first.items()
        if name not in spec.parameters() and all(name in defaults and defaults[name] == value for defaults in others)
    }


def _publish(directory: SweepDirectory, sources: Sequence[SweepDirectory], snapshots: Sequence[Snapshot]) -> None:
    """Writes the rows of all merged sweeps to the ledger of the new directory, as one fragment (a set of files that is
    added at once); writes nothing if there are no rows."""
    contents = {}
    for table in TABLES:
        # A table may have no Parquet files: a sweep without rows has none of any table, and a sweep of models without
        # attention heads has none of the table `heads`.
        parts = [
            (sweep.place, snapshot, number * TRIALS_APART)
            for number, (sweep, snapshot) in enumerate(zip(sources, snapshots, strict=True))
            if snapshot.files.get(table)
        ]
        if parts:
            schema = pa.unify_schemas([snapshot.dataset(table).schema for _, snapshot, _ in parts])
            contents[table] = schema, _rows(parts, table, schema)
    directory.place.make_folders([*contents] or ["trainings"])
    if contents:
        publish(directory.place, "sweeps", contents, Stamp(spec_sha256=directory.spec_sha256))


def _rows(parts: Sequence[tuple[Place, Snapshot, int]], table: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the rows of one table of all sweeps that are merged, with the columns of `schema`; columns that a sweep
    lacks are null.

    Args:
        parts: For each sweep, its place, the snapshot of its ledger, and the number that its trial 0 gets.
    """
    for place, snapshot, first_trial in parts:
        for rows in sorted_batches(place, snapshot, table):
            columns = {name: rows[name] for name in rows.schema.names}
            columns["trial"] = pc.add_checked(columns["trial"], pa.scalar(first_trial, pa.int32()))
            arrays = [columns.get(field.name, pa.nulls(len(rows), field.type)) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
