"""What the run of one trial contains in MLflow, read from the ledger."""

import csv
import io
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

from attnsweep.orchestrator.analysis.labels import clipped, value_label
from attnsweep.orchestrator.analysis.learning_curves import quartile_curves
from attnsweep.orchestrator.analysis.rates.intervals import trial_rate
from attnsweep.orchestrator.ledger.trial import ended_trainings, judging_columns
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.sweep import Sweep

MAX_CURVE_STEPS = 16
"""The largest number of points of a curve. In MLflow each point costs a database row."""
QUARTILES = {"loss_curve/q25": "low", "loss_curve/median": "median", "loss_curve/q75": "high"}
"""The field of a quartile curve by the metric's name. MLflow groups metrics with a common prefix in one section."""
MOST_RUNS = 10_000
"""The largest sweep whose trials have runs of their own in MLflow, which takes milliseconds to write each and pages to
show them. A larger sweep has one run, with a table of its trials."""
_MOST_OF_A_PARAMETER, _MOST_OF_A_NAME = 6_000, 250
"""The characters that MLflow keeps of a parameter, and those for which its databases have room in a run's name."""
_ALIASES = {"init_sigma": "sigma", "learning_rate": "lr"}


@dataclass(frozen=True, slots=True)
class TrialValues:
    """A trial's parameters and aggregated results, as MLflow stores them.

    Attributes:
        params: The parameters as texts, which MLflow requires and cuts.
        metrics: Aggregates over the trial's trainings; only finite ones.
    """

    params: dict[str, str]
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class TrialContent:
    """All that the run of one trial contains in MLflow.

    Attributes:
        curves: Points (step, value) by metric; only finite values.
        started, ended: Milliseconds since the epoch. The run ends at the trial's last `finished_at`, and starts earlier
            by the seconds that were spent on training the trial.
    """

    trial: int
    name: str
    tags: dict[str, str]
    parameters: Mapping[str, Any]
    values: TrialValues
    curves: dict[str, list[tuple[int, float]]]
    started: int
    ended: int


def has_runs_of_trials(spec: Sweep) -> bool:
    return spec.trials <= MOST_RUNS


def table_of_trials(connection: duckdb.DuckDBPyConnection, directory: SweepDirectory) -> str:
    """As CSV: each trial's number, the varied parameters, and aggregated results."""
    spec, values_by_trial = directory.spec, trial_values(connection, directory)
    params = [name for name in spec.parameters() if name not in spec.fixed()]
    metrics = sorted({name for values in values_by_trial.values() for name in values.metrics})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", *params, *metrics])
    for trial, values in values_by_trial.items():
        columns = (values.params.get(name, "") for name in params)
        writer.writerow([trial, *columns, *(values.metrics.get(name, "") for name in metrics)])
    return text.getvalue()


def trial_contents(
    connection: duckdb.DuckDBPyConnection, directory: SweepDirectory, trials: Sequence[int]
) -> list[TrialContent]:
    """For complete trials."""
    chosen = ", ".join(str(trial) for trial in trials) or "null"
    rows = _rows(connection, f"trial in ({chosen})")
    reported = _reported(connection, directory.spec, f"trial in ({chosen})")
    curves = _curves(connection, chosen, {row["trial"] for row in rows if row["n_trainings"] == 1})
    return [_content(directory, row, reported.get(row["trial"]), curves.get(row["trial"], {})) for row in rows]


def trial_values(connection: duckdb.DuckDBPyConnection, directory: SweepDirectory) -> dict[int, TrialValues]:
    """By trial; incomplete trials are included."""
    reported = _reported(connection, directory.spec, "true")
    return {row["trial"]: _values(directory, row, reported.get(row["trial"])) for row in _rows(connection, "true")}


def short_number(value: float) -> str:
    """Two significant digits, in the shorter notation: `0.03`, `1e-2`, `2.5e-4`, `30`."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    scientific = f"{mantissa.removesuffix('.0')}e{int(exponent)}"
    plain = np.format_float_positional(float(f"{value:.1e}"), trim="-")
    power_of_ten = mantissa in ("1.0", "-1.0")
    return min(scientific, plain, key=len) if power_of_ten else min(plain, scientific, key=len)


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
    if len(spec.objectives) == 1 and not spec.constraints:
        return {}
    metrics = {}
    for trial, ended in ended_trainings(judging_columns(connection, condition)).items():
        if (reported := ended.told(spec)) is not None:
            names = (f"objective/{objective.label}" for objective in spec.objectives)
            met = {"constraints_met": float(reported.is_feasible)} if spec.constraints else {}
            metrics[trial] = dict(zip(names, reported.values, strict=True)) | met
    return metrics


def _values(directory: SweepDirectory, row: Mapping[str, Any], reported: Mapping[str, float] | None) -> TrialValues:
    n_judged = row["n_judged"]
    stuck = trial_rate(directory.spec.replicates, row["n_stuck"], n_judged)
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
        **(reported or {}),
    }
    return TrialValues(
        {
            name: repr(value) if isinstance(value, float) else value_label(value)[:_MOST_OF_A_PARAMETER]
            for name, value in _parameters(row).items()
        },
        {name: float(value) for name, value in metrics.items() if value is not None and math.isfinite(value)},
    )


def _parameters(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("param_"): value for name, value in row.items() if name.startswith("param_")}


def _content(
    directory: SweepDirectory,
    row: Mapping[str, Any],
    reported: Mapping[str, float] | None,
    curves: dict[str, list[tuple[int, float]]],
) -> TrialContent:
    trial, parameters, spec = row["trial"], _parameters(row), directory.spec
    # The trial's number comes first, because tables cut off the ends of long names.
    words = [f"#{trial}"]
    for name in spec.parameters():
        if name in parameters and name not in spec.fixed():
            value = parameters[name]
            short = short_number(value) if isinstance(value, float) else value_label(value)
            words.append(f"{_ALIASES.get(name, name)}={short}")
    tags = {
        "attnsweep.kind": "trial",
        "attnsweep.trial_key": f"{directory.sweep}/{trial}",
        "attnsweep.variant": row["variant"],
    }
    return TrialContent(
        trial,
        clipped(" ".join(words), _MOST_OF_A_NAME),
        {name: value for name, value in tags.items() if value is not None},
        parameters,
        _values(directory, row, reported),
        curves,
        row["ended"] - round(1000 * (row["seconds"] or 0.0)),
        row["ended"],
    )


def _curves(
    connection: duckdb.DuckDBPyConnection, chosen: str, alone: Set[int]
) -> dict[int, dict[str, list[tuple[int, float]]]]:
    """For each trial the quartiles of the loss over its trainings."""
    curves = {}
    for trial, points in quartile_curves(connection, "trial", where=f"trial in ({chosen})").items():
        thinned = np.unique(np.linspace(0, len(points) - 1, MAX_CURVE_STEPS).round().astype(int))
        curves[trial] = {
            name: [
                (points[index].step, value)
                for index in thinned
                if math.isfinite(value := getattr(points[index], quartile))
            ]
            for name, quartile in QUARTILES.items()
            if trial not in alone or quartile == "median"
        }
    return curves
