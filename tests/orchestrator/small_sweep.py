"""Sweeps on disk with made-up rows, for tests of their readers."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from attnsweep.orchestrator.ledger.schema import schemas_of
from attnsweep.orchestrator.ledger.writer import LedgerWriter
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Float, Sequential, Sweep
from attnsweep.search_spaces.sweep import sha256_of
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.vocabulary import STUCK_OUTCOMES

SCHEMAS = {table: schemas_of(CategoryPairs)[table] for table in ("trainings", "curves")}
TRAININGS = SCHEMAS["trainings"]
FINISHED = datetime(2025, 11, 1, 12, tzinfo=UTC)
STEPS = (0, 1, 2, 4, 8)

Rows = list[dict[str, Any]]


def small_sweep(name: str, **changes: Any) -> Sweep:
    spec = Sweep(
        name=name,
        workload="category_pairs",
        space={
            "n_steps": 8,
            "init_sigma": Float(low=1e-4, high=1.0, log=True),
            "learning_rate": Float(low=1e-3, high=1e-1, log=True),
        },
        trials=4,
        replicates=4,
    )
    return spec.but(**changes)


def smallest_sweep(space: Mapping[str, Any], **changes: Any) -> Sweep:
    """A sweep over system P at 3 categories and 4 positions, by the sampler `grid`."""
    fixed = {"n_steps": 20, "n_categories": 3, "n_positions": 4}
    return small_sweep("small", space={**fixed, **space}, sampler="grid", **changes)


def open_writer(directory: SweepDirectory) -> LedgerWriter:
    return LedgerWriter(directory.place, SCHEMAS, directory.spec.sha256())


def sequential_counts(rule: Sequential, rate: float, rng: np.random.Generator) -> tuple[int, int]:
    """The numbers of trainings and of stuck trainings of a trial with this stuck rate, when the rule ends it."""
    n = k = 0
    while n < rule.at_most and not (n and rule.is_enough(k, n)):
        n, k = n + rule.batch, k + int(rng.binomial(rule.batch, rate))
    return n, k


def trial_rows(trial: int, outcomes: Sequence[str], **given: Any) -> Rows:
    """The rows of one trial, one per outcome; the given values hold for all of them."""
    parameters = {f"param_{name}": value for name, value in CategoryPairsParameters().values().items()}
    shared = {"sweep": "s", "workload": "category_pairs", "variant": "positions_only", "trial": trial, **parameters}
    measured = {"seed": 1, "n_steps": 8, "train_seconds": 0.25, "lane": 0, "pack_size": 4, "pack": f"p{trial}"}
    return [
        {
            **shared,
            **measured,
            "replicate": replicate,
            "training_id": f"{trial}/{replicate}",
            "outcome": outcome,
            "stuck": outcome in STUCK_OUTCOMES,
            "eval_loss": None if outcome in ("diverged", "failed") else 0.5 + replicate,
            "diverged_step": 3 if outcome == "diverged" else None,
            "finished_at": FINISHED + timedelta(seconds=trial),
            **given,
        }
        for replicate, outcome in enumerate(outcomes)
    ]


def curve_rows(rows: Rows, losses: Mapping[int, Sequence[float]] | None = None) -> Rows:
    """`eval_loss` of each training at `STEPS`: as given by replicate, else falling with the step from 10 +
    replicate."""
    return [
        {**{key: row[key] for key in ("training_id", "trial", "replicate")}, "step": step, "metric": metric, "value": v}
        for row in rows
        if row["outcome"] != "failed"
        for metric in ("loss", "eval_loss")
        for step, v in zip(
            STEPS,
            (losses or {}).get(row["replicate"], [10.0 + row["replicate"] - step for step in STEPS]),
            strict=False,
        )
    ]


def commit(writer: LedgerWriter, rows: Rows, losses: Mapping[int, Sequence[float]] | None = None) -> None:
    trainings = pa.Table.from_pylist([{name: row.get(name) for name in TRAININGS.names} for row in rows], TRAININGS)
    writer.commit(rows[0]["pack"], trainings, pa.Table.from_pylist(curve_rows(rows, losses), SCHEMAS["curves"]), None)


def edit_record(place: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Changes `sweep.json`, which has the digest of the new contents."""
    record = json.loads((place / "sweep.json").read_text())
    del record["sha256"]
    edit(record)
    (place / "sweep.json").write_text(json.dumps(record | {"sha256": sha256_of(record)}, indent=2) + "\n")


def sweep_on_disk(path: PlaceName, spec: Sweep, *trials: Rows) -> SweepDirectory:
    """A sweep directory whose ledger holds these trials, in one fragment."""
    directory = SweepDirectory.create(path, spec, {})
    with open_writer(directory) as writer:
        if rows := [{**row, "sweep": directory.sweep} for rows in trials for row in rows]:
            commit(writer, rows)
    return directory
