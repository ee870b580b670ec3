"""The trials that a reader of the page can explore: their values, how they ended, and their learning curves."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
from numpy.typing import ArrayLike

from attnsweep.orchestrator.analysis.labels import GREY, outcome_order, parameter_label, value_label
from attnsweep.orchestrator.analysis.rates.by_parameter import swept_names
from attnsweep.orchestrator.ledger.views import outcomes_of, param_column
from attnsweep.orchestrator.report.templating import without_folders
from attnsweep.search_spaces.dimensions import Categorical, Float, Int
from attnsweep.search_spaces.sweep import Sweep

MAX_TRIALS = 5000
_MAX_STEPS, _MAX_REPLICATES, _MAX_LOSSES = 32, 8, 320_000
"""Of curves: steps of each, replicates of each trial, and losses on the page."""


def read_trials(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> dict[str, Any] | None:
    """What the page's script reads, of a random sample if there are more than `MAX_TRIALS`; `None` without trials."""
    names = swept_names(spec)
    columns = "".join(f", {param_column(name)}" for name in names)
    rows = connection.execute(
        f"select trial, loss_median{columns} from (from trials order by hash(trial) limit {MAX_TRIALS}) order by trial"
    ).fetchall()
    if not rows:
        return None
    ((n_trials,),) = connection.execute("select count(*) from trials").fetchall()
    trials, losses, *values = zip(*rows, strict=True)
    connection.execute("create or replace temp table shown as select unnest(?::int[]) as trial", [list(trials)])
    place = {trial: row for row, trial in enumerate(trials)}
    known = outcomes_of(connection)
    counted = connection.execute(
        "select trial, outcome, count(*) from trainings semi join shown using (trial) group by all"
    ).fetchall()
    outcomes = sorted({outcome for _, outcome, _ in counted}, key=outcome_order)
    counts = np.zeros((len(trials), len(outcomes)))
    for trial, outcome, n in counted:
        counts[place[trial], outcomes.index(outcome)] = n
    axes = [_axis(spec, name, column) for name, column in zip(names, values, strict=True)]
    finite = np.array([np.nan if loss is None else loss for loss in losses])
    axes.append({"label": "median loss", "log": bool(np.nanmin(finite, initial=1) > 0), "values": _packed(finite)})
    return {
        "of": n_trials,
        "trials": trials,
        "axes": axes,
        "outcomes": [[name, known[name].colour if name in known else GREY] for name in outcomes],
        "counts": _packed(counts),
    } | _curves(connection, place, outcomes)


def _axis(spec: Sweep, name: str, values: Sequence[Any]) -> dict[str, Any]:
    condition = spec.conditional().get(name)
    parts = [spec.varied()[name]] if condition is None else [condition.then, condition.otherwise]
    ranges = [part for part in parts if isinstance(part, Float | Int)]
    if not ranges or any(isinstance(value, str | bool) for value in values):
        declared = [choice for part in parts if isinstance(part, Categorical) for choice in part.choices]
        labels = [value_label(value) for value in (*declared, *values)]
        choices = list(dict.fromkeys(labels))
        values = [choices.index(label) for label in labels[len(declared) :]]
        shown = list(map(without_folders, choices))
        return {"label": parameter_label(name), "choices": shown, "values": _packed(values)}
    numbers = [np.nan if value is None else value for value in values]
    kind = {"log": any(part.log for part in ranges), "whole": all(isinstance(part, Int) for part in ranges)}
    return {"label": parameter_label(name), **kind, "values": _packed(numbers)}


def _curves(connection: duckdb.DuckDBPyConnection, place: dict[int, int], outcomes: Sequence[str]) -> dict[str, Any]:
    """Evaluation losses of the first replicates, at the same steps."""
    probed = "curves semi join shown using (trial) where metric = 'eval_loss'"
    steps = connection.execute(f"select distinct step from {probed} order by step").fetchnumpy()["step"]
    if len(steps) > _MAX_STEPS:
        steps = steps[np.unique(np.geomspace(1, len(steps), _MAX_STEPS).round().astype(int) - 1)]
    n_replicates = int(np.clip(_MAX_LOSSES // (len(place) * max(len(steps), 1)), 1, _MAX_REPLICATES))
    rows = connection.execute(
        "select trial, replicate, outcome from trainings semi join shown using (trial)"
        f" qualify row_number() over (partition by trial order by replicate) <= {n_replicates}"
        " order by trial, replicate"
    ).fetchall()
    row_of = {(trial, replicate): row for row, (trial, replicate, _) in enumerate(rows)}
    losses = np.full((len(rows), len(steps)), np.nan)
    column = {step: number for number, step in enumerate(steps.tolist())}
    found = connection.execute(
        f"select trial, replicate, step, value from {probed} and step in (select unnest(?))", [steps.tolist()]
    ).fetchnumpy()
    for trial, replicate, step, value in zip(*(found[name].tolist() for name in found), strict=True):
        if (row := row_of.get((trial, replicate))) is not None and value is not None:
            losses[row, column[step]] = value
    ends = [(place[trial], replicate, outcomes.index(outcome)) for trial, replicate, outcome in rows]
    return {"steps": steps.tolist(), "rows": _packed(ends), "losses": _packed(losses)}


def _packed(numbers: ArrayLike) -> str:
    """float32 in base64."""
    with np.errstate(over="ignore"):
        return base64.b64encode(np.ascontiguousarray(numbers, "<f4").tobytes()).decode()


def as_script(data: dict[str, Any]) -> str:
    """JSON that cannot end its `script` element."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
