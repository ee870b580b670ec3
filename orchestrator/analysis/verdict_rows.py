"""The data of a verdict: each group's trainings in order, with the columns that the claim needs."""

from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from typing import Any, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.role_emergence import layer_names_of, role_histories
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.search_spaces.claim import Claim
from attnsweep.search_spaces.statement import Quantity
from attnsweep.workloads.errors import SpecError, UserError, did_you_mean
from attnsweep.workloads.vocabulary import UNJUDGED_OUTCOMES

Row: TypeAlias = Mapping[str, Any]
Sample: TypeAlias = NDArray[Any]
"""One entry for each judged training of a group, in order. For a rate, whether it has the property (bool). For a
median, the step at which it reached the goal, or the value of its metric (float); infinite without either."""

_ABOVE_ALL_STEPS = float(2**62)
_UNTIL = " until"
"""Ends the name of a column with the last step at which a role could have been confirmed, where it did not emerge."""
_LAST_VALUES = """
select trial, replicate, arg_max(value, step) from curves join trainings using (trial, replicate)
where metric = ? and step >= n_steps group by all
"""
"""A metric at the end of each training; none where it was not finite."""


def read_rows(ledger: Ledger, claim: Claim) -> pa.Table:
    """The trainings, with columns for the claim's roles and metrics."""
    rows = ledger.trainings()
    if not rows.num_rows:
        return rows
    places = list(zip(rows["trial"].to_pylist(), rows["replicate"].to_pylist(), strict=True))
    for name, values in ledger.ask(lambda connection: _measured_columns(connection, claim)).items():
        rows = rows.append_column(name, pa.array(map(values.get, places), pa.float64()))
    return rows


def quantities(claim: Claim) -> list[Quantity]:
    return [each for statement in claim.statements for each in statement.quantities]


def by_group(claim: Claim, trainings: pa.Table) -> dict[str, list[Row]]:
    """The trainings of each group by replicate, up to the first that has not ended."""
    group_of = {tuple(values[name] for name in claim.parameters): group for group, values in claim.groups.items()}
    found: dict[str, dict[int, Row]] = {group: {} for group in claim.groups}
    for row in trainings.to_pylist():
        values = tuple(row.get(f"param_{name}") for name in claim.parameters)
        if values not in group_of:
            listed = ", ".join(f"{name}={value}" for name, value in zip(claim.parameters, values, strict=True))
            expected = "only trainings with the parameter values of one of the claim's groups"
            fix = "restore the sweep from a copy"
            raise UserError("trainings", given=f"a training with {listed}", expected=expected, fix=fix)
        found[group_of[values]][row["replicate"]] = row
    return {group: [rows[number] for number in takewhile(rows.__contains__, count())] for group, rows in found.items()}


def is_judged(row: Row) -> bool:
    return row["outcome"] not in UNJUDGED_OUTCOMES


def sample(quantity: Quantity, rows: Sequence[Row], *, soonest: bool = False) -> Sample:
    """A step is known up to the interval between two probes: `soonest` takes its first step, else its last."""
    judged = [row for row in rows if is_judged(row)]
    if quantity.what == "value":
        values = np.array([row[_column(quantity)] for row in judged], np.float64)
        if quantity.side is None:
            return np.where(np.isnan(values), np.inf, values)
        return values > quantity.than if quantity.side == "above" else values < quantity.than
    steps = np.array([_step(quantity, row, soonest and quantity.before is None) for row in judged])
    if quantity.kind == "median":
        return steps
    if quantity.before is not None:
        return steps < np.array([_or_infinite(row[f"event_{quantity.before}"]) for row in judged])
    return steps <= (_ABOVE_ALL_STEPS if quantity.by is None else quantity.by)


def last_step(quantity: Quantity, rows: Sequence[Row]) -> float:
    """At which any training could have reached the statement's goal; infinite for a metric."""
    if quantity.what == "value":
        return np.inf
    until = (row[_column(quantity) + _UNTIL] for row in rows) if quantity.what == "role" else ()
    return max((step for step in until if step is not None), default=float(rows[0]["param_n_steps"]))


def _step(quantity: Quantity, row: Row, soonest: bool) -> float:
    """Infinite if the training never reached the goal."""
    column, has_outcome = _column(quantity), True
    if quantity.what == "outcome":
        has_outcome = row["stuck"] if quantity.name == "stuck" else row["outcome"] == quantity.name
        column = "onset_step"
    if not has_outcome or row[column] is None or not soonest:
        return _or_infinite(row[column] if has_outcome else None)
    before = row[f"before_{column}"]
    return 0.0 if before is None else before + 1.0


def _or_infinite(step: float | None) -> float:
    return np.inf if step is None else float(step)


def _column(quantity: Quantity) -> str:
    in_layer = "" if quantity.layer is None else f"_in_{quantity.layer}"
    return f"{quantity.what}_{quantity.name}{in_layer}"


_Places: TypeAlias = dict[tuple[int, int], float]
"""Values by trial and replicate."""


def _measured_columns(connection: duckdb.DuckDBPyConnection, claim: Claim) -> dict[str, _Places]:
    found: dict[str, _Places] = {}
    for each in quantities(claim):
        if each.what == "value":
            found[_column(each)] = _last_values(connection, each.name)
        elif each.what == "role":
            found |= _role_steps(connection, each, layer_number(claim.workload, each.layer))
    return found


def _last_values(connection: duckdb.DuckDBPyConnection, metric: str) -> _Places:
    known = [name for (name,) in connection.execute("select distinct metric from curves order by all").fetchall()]
    if metric not in known:
        raise no_metric(metric, known)
    rows = connection.execute(_LAST_VALUES, [metric]).fetchall()
    return {(trial, replicate): value for trial, replicate, value in rows}


def no_metric(name: str, known: Sequence[str]) -> SpecError:
    fix = did_you_mean(name, known, otherwise="name one of them")
    return SpecError("states", given=name, expected=f"a metric: {', '.join(known)}", fix=fix)


def layer_number(workload: str, layer: str | None) -> int | None:
    """By name, or number as a text."""
    if layer is None or layer.isdecimal():
        return None if layer is None else int(layer)
    names = layer_names_of(workload)
    if layer not in names:
        fix = did_you_mean(layer, names, otherwise="give its number, from 0")
        expected = f"the name or number of a layer, such as {', '.join((*names, '0'))}"
        raise SpecError("states", given=layer, expected=expected, fix=fix)
    return names.index(layer)


def _role_steps(connection: duckdb.DuckDBPyConnection, quantity: Quantity, layer: int | None) -> dict[str, _Places]:
    """A role's columns: the step of its emergence, that of the probe before, and `_UNTIL`."""
    emerged: _Places = {}
    before: _Places = {}
    until: _Places = {}
    for history in role_histories(connection, any_layer=layer is None):
        if (history.layer, history.role) == (layer, quantity.name):
            places = zip(history.trial.tolist(), history.replicate.tolist(), strict=True)
            ends = history.emerged, history.step.tolist(), history.before.tolist()
            for place, has_emerged, step, step_before in zip(places, *ends, strict=True):
                (emerged if has_emerged else until)[place] = float(step)
                before[place] = float(step_before)
    column = _column(quantity)
    return {column: emerged, f"before_{column}": before, column + _UNTIL: until}
