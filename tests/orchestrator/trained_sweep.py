"""Real sweeps: the sweep loop on the local pool, with a real study and ledger, without MLflow."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from attnsweep import Sweep
from attnsweep.orchestrator.ledger.compaction import compact
from attnsweep.orchestrator.ledger.fragments import TABLES, Stamp, publish
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.schema import schemas_of
from attnsweep.orchestrator.ledger.writer import LedgerWriter
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.self_check import replay_some
from attnsweep.orchestrator.running.study import open_study
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.local_pool import LocalPool
from attnsweep.orchestrator.training.messages import RunContext
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.user_code import user_code_of


def trained_sweep(path: PlaceName, spec: Sweep, pack_size: int = 8, n_commits: int | None = None) -> SweepDirectory:
    """A sweep as `attnsweep run` leaves it; with `n_commits`, one that was stopped after this many packs."""
    workload = load_workload(spec.workload)
    declared = workload.parameters.declared()
    directory = SweepDirectory.create(
        path,
        spec,
        {n: each.default for n, each in declared.items() if n not in spec.space},
        code=user_code_of(workload),
    )
    with LedgerWriter(directory.place, schemas_of(workload), directory.spec_sha256) as writer:
        study = open_study(directory)
        pool = LocalPool(workload, RunContext(directory.sweep, directory.environment, curves_every=spec.one_probe_in()))
        commits: list[object] = []

        def count(*told: object) -> None:
            commits.append(told)

        loop = SweepLoop(directory, workload, study, writer, pool, pack_size=pack_size, follower=count)
        finished = loop.run(lambda: len(commits) == n_commits)
        study.save()
        replays = replay_some(directory, workload, pool, lambda: False) if finished else None
    directory.record_run(finished=finished, seconds=1.0, replays=replays)
    compact(directory.place)
    return directory


def edit(directory: SweepDirectory, table: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Changes the rows of a compacted table; the fragment has a valid digest but wrong content."""
    root = Path(str(directory.place))
    paths = {each: next((root / each).glob("*.parquet")) for each in TABLES if (root / each).exists()}
    tables = {each: pq.read_table(path) for each, path in paths.items()}
    changed = change(tables[table])
    tables[table] = changed.cast(pa.schema([tables[table].schema.field(name) for name in changed.column_names]))
    for path in paths.values():
        path.unlink()
    contents = {each: (rows.schema.remove_metadata(), rows.to_batches()) for each, rows in tables.items()}
    publish(directory.place, "edited", contents, Stamp(spec_sha256=directory.spec_sha256))


def edit_row(directory: SweepDirectory, table: str, index: int, **values: Any) -> None:
    """Changes some values of one row."""

    def change(rows: pa.Table) -> pa.Table:
        records = rows.to_pylist()
        records[index] |= values
        return pa.Table.from_pylist(records, rows.schema)

    edit(directory, table, change)


def records(directory: SweepDirectory, **wanted: Any) -> list[dict[str, Any]]:
    """Rows of `trainings` that have these values, with their `place` among all rows."""
    rows = Ledger(directory.place).trainings().to_pylist()
    return [row | {"place": i} for i, row in enumerate(rows) if all(row[name] == v for name, v in wanted.items())]


FRAGILE = """
from dataclasses import dataclass
from attnsweep import Categorical, Conditional, Float, Sweep
from attnsweep.workloads.category_pairs import CategoryPairs, CategoryPairsParameters
from attnsweep.workloads.parameters import parameter

@dataclass(frozen=True, kw_only=True)
class Parameters(CategoryPairsParameters):
    raises: bool = parameter(False, "whether the training raises")

class Fragile(CategoryPairs):
    name = "fragile"
    parameters = Parameters

    def build(self, parameters):
        if parameters.raises:
            raise ZeroDivisionError("planted\\nin two lines")
        return super().build(parameters)

def sweep():
    return Sweep(
        name="fragile", workload="fragile.py:Fragile", sampler="random", trials=10, replicates=3, seed=7,
        space={
            "raises": Categorical(choices=(False, False, False, True)),
            "variant": Categorical(choices=("positions_only", "categories_only")),
            "attention_activation": Conditional(
                on="optimizer", among=("adam",), then=Categorical(choices=("identity", "softmax"))
            ),
            "optimizer": Categorical(choices=("sgd", "adam")),
            "learning_rate": Conditional(
                on="optimizer", among=("adam",), then=Float(low=1e-3, high=1e-1, log=True), otherwise=0.5
            ),
            "init_sigma": Float(low=1e-4, high=1.0, log=True),
            "n_steps": 12, "n_categories": 3, "n_positions": 4,
        },
    )
"""
"""A user's file: trials that are refused, trials that fail, parameters that depend on others."""
