"""How often heads have each role, when it emerges, and under which hyperparameters: numbers, tables, JSON, Markdown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import duckdb
import numpy as np
import pyarrow as pa

from attnsweep.orchestrator.analysis.answer import Answer
from attnsweep.orchestrator.analysis.rates.by_parameter import ParameterRates, binned_rates, swept_names
from attnsweep.orchestrator.analysis.rates.interaction import with_rates
from attnsweep.orchestrator.analysis.rates.intervals import (
    Rate,
    pooling,
    rate_label,
    share_label,
    trials_count_once,
    weights_of_equal_trials,
)
from attnsweep.orchestrator.analysis.roles.emergence import RoleEmergence, emergence_of
from attnsweep.orchestrator.analysis.roles.history import RoleHistory, layer_names_of, layer_title, role_histories
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


@dataclass(frozen=True, repr=False)
class RoleRates(Answer, Sequence[RoleRate]):
    """How often each role occurs in each layer: a sequence with one element for each, and a table."""

    rates: tuple[RoleRate, ...]

    @overload
    def __getitem__(self, index: int) -> RoleRate: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[RoleRate, ...]: ...

    def __getitem__(self, index: int | slice) -> RoleRate | tuple[RoleRate, ...]:
        return self.rates[index]

    def __len__(self) -> int:
        return len(self.rates)

    def _in_words(self) -> str:
        words = (f"{each.role} in {_layer(each.layer)} {share_label(each.rate)}" for each in self.rates)
        return "; ".join(words) or "no heads that could have a role"

    def to_arrow(self) -> pa.Table:
        """One row per layer and role: the share of trainings with its interval, and the share of heads."""
        table = with_rates(_layers_and_roles(self.rates), [each.rate for each in self.rates])
        return table.append_column("head_share", pa.array([each.head_share for each in self.rates], pa.float64()))


@dataclass(frozen=True, repr=False)
class RoleRatesByParameter(Answer, Sequence[RoleRatesBy]):
    """How often each role occurs in each layer, by each swept parameter: a sequence, and a table."""

    rates: tuple[RoleRatesBy, ...]

    @overload
    def __getitem__(self, index: int) -> RoleRatesBy: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[RoleRatesBy, ...]: ...

    def __getitem__(self, index: int | slice) -> RoleRatesBy | tuple[RoleRatesBy, ...]:
        return self.rates[index]

    def __len__(self) -> int:
        return len(self.rates)

    def _in_words(self) -> str:
        parameters = dict.fromkeys(by.parameter for each in self.rates for by in each.by_parameter)
        return f"{', '.join(dict.fromkeys(each.role for each in self.rates))} by {', '.join(parameters)}"

    def to_arrow(self) -> pa.Table:
        """One row per layer, role, parameter and bin: the share of trainings with its interval."""
        rows = [(each, by, one) for each in self.rates for by in each.by_parameter for one in by.bins]
        table = _layers_and_roles([each for each, _, _ in rows])
        table = table.append_column("parameter", pa.array([by.title for _, by, _ in rows], pa.string()))
        table = table.append_column("bin", pa.array([one.label for _, _, one in rows], pa.string()))
        table = table.append_column("n_trials", pa.array([one.n_trials for _, _, one in rows], pa.int64()))
        return with_rates(table, [one.rate for _, _, one in rows])


def role_rates(connection: duckdb.DuckDBPyConnection, spec: Sweep, *, any_layer: bool = False) -> RoleRates:
    """The share of trainings and of heads with each role, layer by layer, for all roles that occur or could occur.

    The interval does not treat the trainings of one trial as independent. Failed and diverged trainings, and those
    without heads, are left out. Under `Sequential` each trial counts once.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
        any_layer: Whether to take the heads of all layers together.
    """
    return RoleRates(rates_of(role_histories(connection, any_layer=any_layer), spec))


def role_rates_by(
    connection: duckdb.DuckDBPyConnection, spec: Sweep, *, any_layer: bool = False
) -> RoleRatesByParameter:
    """The share of trainings with each role by each parameter that the sweep varies.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
        any_layer: Whether to take the heads of all layers together.
    """
    return RoleRatesByParameter(
        rates_by_parameter_of(role_histories(connection, any_layer=any_layer), connection, spec)
    )


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


def _layers_and_roles(rates: Sequence[RoleRate | RoleRatesBy]) -> pa.Table:
    layers = pa.array([each.layer for each in rates], pa.int32())
    return pa.table({"layer": layers, "role": pa.array([each.role for each in rates], pa.string())})


def _layer(layer: int | None) -> str:
    return "any layer" if layer is None else f"layer {layer}"


def _head_share(history: RoleHistory, spec: Sweep) -> float:
    weight = weights_of_equal_trials(history.trial) if trials_count_once(spec) else np.ones(len(history.trial))
    return float((weight * history.n_with).sum() / (weight * history.n_heads).sum())


_MOST_MARKDOWN_COLUMNS = 4
"""Markdown leaves out a table of roles by parameter with more columns; the JSON has its numbers."""


@dataclass(frozen=True, slots=True)
class RoleResults:
    """The roles of attention heads. All tuples have one element per layer and role, in the same order.

    Attributes:
        rates: How often each role occurs.
        emergence: When it emerges.
        by_parameter: Under which hyperparameters it occurs.
        layer_names: The workload's names for layers 0, 1, ...; empty if it has none, or is not installed.
    """

    rates: tuple[RoleRate, ...]
    emergence: tuple[RoleEmergence, ...]
    by_parameter: tuple[RoleRatesBy, ...]
    layer_names: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """The labels of the roles, each once."""
        return list(dict.fromkeys(rate.role for rate in self.rates))

    def layer_name(self, layer: int | None) -> str:
        """The name of a layer, or its number if it has no name."""
        if layer is None:
            return "any"
        return self.layer_names[layer] if layer < len(self.layer_names) else str(layer)

    def layer_title(self, layer: int | None) -> str:
        """A layer in words: `encoder self`, `layer 0`, `any layer`."""
        return layer_title(self.layer_names, layer)

    def rows(self) -> Iterator[tuple[RoleRate, RoleEmergence]]:
        """The rate and the emergence of each role in each layer, role by role."""
        pairs = list(zip(self.rates, self.emergence, strict=True))
        yield from sorted(pairs, key=lambda pair: self.names.index(pair[0].role))

    def as_json(self) -> list[dict[str, Any]]:
        """Rates and emergence as plain values for JSON."""
        return [
            {
                "role": rate.role,
                "layer": rate.layer,
                "layer_name": self.layer_name(rate.layer),
                **rate.rate.as_json(),
                "head_share": rate.head_share,
                "median_step": when.median_step,
                "median_share_of_steps": when.median_share,
            }
            for rate, when in self.rows()
        ]

    def by_parameter_as_json(self) -> list[dict[str, Any]]:
        """Rates by parameter as plain values for JSON."""
        return [
            {
                "role": each.role,
                "layer": each.layer,
                "layer_name": self.layer_name(each.layer),
                "by": [parameter.as_json() for parameter in each.by_parameter],
            }
            for each in self.by_parameter
        ]

    def markdown_lines(self) -> Iterator[str]:
        """The tables in Markdown."""
        yield "| role | layer | trainings with it (95% interval) | heads | median step of emergence |"
        yield "|---|---|---|---|---|"
        for rate, when in self.rows():
            words = (rate.role, self.layer_name(rate.layer), rate_label(rate.rate), f"{rate.head_share:.1%}")
            yield f"| {' | '.join(words)} | {step_label(when)} |"
        if len(self.by_parameter) > _MOST_MARKDOWN_COLUMNS:
            return
        heading = " | ".join(f"{each.role}, {self.layer_name(each.layer)}" for each in self.by_parameter)
        for index, parameter in enumerate(self.by_parameter[0].by_parameter):
            yield ""
            yield f"| {parameter.title} | trials | {heading} |"
            yield "|---|---|" + "---|" * len(self.by_parameter)
            for place, each in enumerate(parameter.bins):
                rates = (role.by_parameter[index].bins[place].rate for role in self.by_parameter)
                yield f"| {each.label} | {each.n_trials} | {' | '.join(map(rate_label, rates))} |"


def read_role_results(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> RoleResults | None:
    """Reads the roles of a sweep's heads; `None` if it has no heads that could have a role.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
    """
    histories = role_histories(connection)
    if not histories:
        return None
    return RoleResults(
        rates_of(histories, spec),
        emergence_of(histories, spec),
        rates_by_parameter_of(histories, connection, spec),
        layer_names_of(spec.workload),
    )


def step_label(when: RoleEmergence) -> str:
    """`2,000 (25% through)`: the median step of emergence, and its share of the steps if all trainings took as many;
    `-` if no role emerged."""
    if when.median_step is None:
        return "-"
    through = "" if when.median_share is None else f" ({when.median_share:.0%} through)"
    return f"{when.median_step:,}{through}"
