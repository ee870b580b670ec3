"""How often heads have each role, and under which hyperparameters: rates over the trainings of a sweep."""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np

from attnsweep.orchestrator.analysis.rates.by_parameter import ParameterRates, binned_rates, swept_names
from attnsweep.orchestrator.analysis.rates.intervals import (
    Rate,
    pooling,
    trials_count_once,
    weights_of_equal_trials,
)
from attnsweep.orchestrator.analysis.roles.history import RoleHistory, role_histories
from attnsweep.orchestrator.ledger.sql import param_column
from attnsweep.search_spaces.sweep import Sweep


@dataclass(frozen=True, slots=True)
class RoleRate:
    """How often one role occurs in one layer at the end.

    Attributes:
        layer: The layer's number; `None` for any layer.
        role: The role's label.
        rate: The share of trainings in which at least one head of the layer has the role at the last probe.
        head_share: The share of the layer's heads that have the role at that probe.
    """

    layer: int | None
    role: str
    rate: Rate
    head_share: float


@dataclass(frozen=True, slots=True)
class RoleRatesBy:
    """How often one role occurs in one layer at the end, by each swept parameter.

    Attributes:
        layer: The layer's number; `None` for any layer.
        role: The role's label.
        by_parameter: The rate in each bin; a trial without a training that counts is in no bin.
    """

    layer: int | None
    role: str
    by_parameter: tuple[ParameterRates, ...]


def role_rates(connection: duckdb.DuckDBPyConnection, spec: Sweep, *, any_layer: bool = False) -> tuple[RoleRate, ...]:
    """The share of trainings and of heads with each role, layer by layer, for all roles that occur or could occur.

    The interval does not treat the trainings of one trial as independent. Failed and diverged trainings, and those
    without heads, are left out. Under `Sequential` each trial counts once.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
        any_layer: Whether to take the heads of all layers together.
    """
    return rates_of(role_histories(connection, any_layer=any_layer), spec)


def role_rates_by(
    connection: duckdb.DuckDBPyConnection, spec: Sweep, *, any_layer: bool = False
) -> tuple[RoleRatesBy, ...]:
    """The share of trainings with each role by each parameter that the sweep varies.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
        any_layer: Whether to take the heads of all layers together.
    """
    return rates_by_parameter_of(role_histories(connection, any_layer=any_layer), connection, spec)


def rates_of(histories: Sequence[RoleHistory], spec: Sweep) -> tuple[RoleRate, ...]:
    """`role_rates` from histories that have already been read."""
    return tuple(
        RoleRate(each.layer, each.role, pooling(spec)(list(each.counts().values())), _head_share(each, spec))
        for each in histories
    )


def rates_by_parameter_of(
    histories: Sequence[RoleHistory], connection: duckdb.DuckDBPyConnection, spec: Sweep
) -> tuple[RoleRatesBy, ...]:
    """`role_rates_by` from histories that have already been read."""
    columns = "".join(f", {param_column(name)}" for name in swept_names(spec))
    values = {trial: row for trial, *row in connection.execute(f"select trial{columns} from trials").fetchall()}
    found = []
    for each in histories:
        counts = each.counts()
        rates = binned_rates(spec, [values[trial] for trial in counts], list(counts.values()), pooling(spec))
        found.append(RoleRatesBy(each.layer, each.role, rates))
    return tuple(found)


def _head_share(history: RoleHistory, spec: Sweep) -> float:
    weight = weights_of_equal_trials(history.trial) if trials_count_once(spec) else np.ones(len(history.trial))
    return float((weight * history.n_with).sum() / (weight * history.n_heads).sum())
