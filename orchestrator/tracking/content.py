"""What the runs of a sweep and of its trials contain in MLflow, read from the ledger."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow.csv import write_csv

from attnsweep.orchestrator.analysis.labels import clipped, value_label
from attnsweep.orchestrator.analysis.learning_curves import quartile_curves
from attnsweep.orchestrator.analysis.rates.intervals import pooling
from attnsweep.orchestrator.analysis.results import SweepResults
from attnsweep.orchestrator.ledger.trial import ended_trainings, judging_columns
from attnsweep.orchestrator.ledger.views import identifier
from attnsweep.orchestrator.storage.copies import full_name
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.sweep import Sweep

MAX_CURVE_STEPS = 16
"""Of a curve: in MLflow each point costs a database row."""
MAX_RUNS = 500
"""Trials of a larger sweep have no runs of their own: each would take MLflow's client 10 ms of a core."""
_MAX_PARAMETER_CHARACTERS, _MAX_NAME_CHARACTERS, _MAX_NOTE_CHARACTERS = 6_000, 250, 8_000
"""What MLflow keeps of a parameter and of a note, and its databases of a run's name."""


@dataclass(frozen=True, slots=True)
class TrialContent:
    """The run of one trial.

    Attributes:
        metrics: Aggregates over the trial's trainings; only finite ones.
        curve: Median loss by step; only finite values.
        started, ended: Milliseconds since the epoch: `ended` is the trial's last `finished_at`, `started` is earlier by
            the seconds that were spent on training it.
    """

    trial: int
    name: str
    tags: dict[str, str]
    params: dict[str, str]
    metrics: dict[str, float]
    curve: list[tuple[int, float]]
    started: int
    ended: int


def has_runs_of_trials(spec: Sweep) -> bool:
    return spec.trials <= MAX_RUNS


def table_of_trials(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> str:
    """The view `trials` without parameters that do not vary, as CSV."""
    names = [name for name in connection.table("trials").columns if name.removeprefix("param_") not in spec.fixed()]
    rows = connection.sql(f"select {', '.join(map(identifier, names))} from trials order by trial").to_arrow_table()
    text = pa.BufferOutputStream()
    write_csv(rows, text)
    return str(text.getvalue().to_pybytes(), "utf-8")


def trial_contents(
    connection: duckdb.DuckDBPyConnection, directory: SweepDirectory, trials: Sequence[int]
) -> list[TrialContent]:
    """`trials` must be complete."""
    condition = f"trial in ({', '.join(map(str, trials)) or 'null'})"
    reported = _reported(connection, directory.spec, condition)
    curves = quartile_curves(connection, "trial", where=condition).to_pylist()
    medians = {row["trial"]: [(point["step"], point["median"]) for point in row["curve"]] for row in curves}
    contents = []
    for row in _rows(connection, condition):
        trial, points = row["trial"], medians.get(row["trial"], [])
        kept = np.unique(np.linspace(0, len(points) - 1, MAX_CURVE_STEPS).round().astype(int)) if points else ()
        tags = {"attnsweep.kind": "trial", "attnsweep.trial_key": f"{directory.sweep}/{trial}"}
        contents.append(
            TrialContent(
                trial,
                _name(directory.spec, row),
                tags | ({} if row["variant"] is None else {"attnsweep.variant": row["variant"]}),
                _params(row),
                _metrics(directory.spec, row, reported.get(trial, {})),
                [points[number] for number in kept if math.isfinite(points[number][1])],
                row["ended"] - round(1000 * (row["seconds"] or 0.0)),
                row["ended"],
            )
        )
    return contents


def sweep_metrics(results: SweepResults) -> dict[str, float]:
    metrics = {
        "n_trainings": results.n_trainings,
        "stuck_rate": results.stuck_rate.share,
        "stuck_rate_low": results.stuck_rate.low,
        "stuck_rate_high": results.stuck_rate.high,
        "solved_rate": results.solved_rate.share,
        "loss_median": results.loss_median,
    }
    return {name: float(value) for name, value in metrics.items() if value is not None}


def sweep_note(directory: SweepDirectory, results: str) -> str:
    spec = directory.spec
    lines = [
        spec.description or spec.name,
        *([directory.note] if directory.note else []),
        f"`{full_name(directory.place)}` on {directory.provenance.get('host', 'an unknown host')}; "
        f"{spec.trials} trials x {spec.replicates} replicates, sampler {spec.sampler}.",
        results,
        *([] if has_runs_of_trials(spec) else [f"Trials are in `trials.csv`: more than {MAX_RUNS:,} have no runs."]),
    ]
    return "\n\n".join(lines)[:_MAX_NOTE_CHARACTERS]


def _rows(connection: duckdb.DuckDBPyConnection, condition: str) -> list[dict[str, Any]]:
    rows = connection.execute(
        f"""
        select trials.* exclude (first_finished_at, last_finished_at), n_diverged, epoch_ms(last_finished_at) as ended
        from trials join (
            select trial, count(*) filter (outcome = 'diverged') as n_diverged from trainings
            where {condition} group by trial
        ) using (trial) where {condition} order by trial
        """
    )
    names = [column[0] for column in rows.description]
    return [dict(zip(names, row, strict=True)) for row in rows.fetchall()]


def _reported(connection: duckdb.DuckDBPyConnection, spec: Sweep, condition: str) -> dict[int, dict[str, float]]:
    """By trial the objectives, and whether the constraints are met; nothing for one objective without constraints."""
    if len(spec.objectives) == 1 and not spec.constraints:
        return {}
    metrics = {}
    for trial, ended in ended_trainings(judging_columns(connection, condition)).items():
        if (reported := ended.told(spec)) is not None:
            names = (f"objective/{objective.label}" for objective in spec.objectives)
            constraints = {"constraints_met": float(reported.is_feasible)} if spec.constraints else {}
            metrics[trial] = dict(zip(names, reported.values, strict=True)) | constraints
    return metrics


def _metrics(spec: Sweep, row: Mapping[str, Any], reported: Mapping[str, float]) -> dict[str, float]:
    n_judged = row["n_judged"]
    stuck = pooling(spec)([(n_judged, row["n_stuck"])])
    metrics = {
        "stuck_rate": stuck.share,
        "stuck_rate_low": stuck.low,
        "stuck_rate_high": stuck.high,
        "solved_rate": row["solved_rate"],
        "diverged_rate": row["n_diverged"] / n_judged if n_judged else None,
        "loss_median": row["loss_median"],
        "n_trainings": row["n_trainings"],
        "n_pruned": row["n_pruned"] or None,
        "train_seconds": row["seconds"],
        **reported,
    }
    return {name: float(value) for name, value in metrics.items() if value is not None and math.isfinite(value)}


def _params(row: Mapping[str, Any]) -> dict[str, str]:
    params = {name.removeprefix("param_"): value for name, value in row.items() if name.startswith("param_")}
    texts = {name: repr(value) if isinstance(value, float) else value_label(value) for name, value in params.items()}
    return {name: text[:_MAX_PARAMETER_CHARACTERS] for name, text in texts.items()}


def _name(spec: Sweep, row: Mapping[str, Any]) -> str:
    """With the trial's number first, because tables cut off the ends of long names."""
    swept = {name: row.get(f"param_{name}") for name in spec.parameters() if name not in spec.fixed()}
    words = (f"{name}={value:.2g}" if isinstance(value, float) else f"{name}={value}" for name, value in swept.items())
    return clipped(" ".join([f"#{row['trial']}", *words]), _MAX_NAME_CHARACTERS)
