"""The roles of heads in a sweep: how often, when and under which parameters they occur."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from attnsweep.orchestrator.analysis.answer import Answer, Record, markdown_table, table
from attnsweep.orchestrator.analysis.rates.by_parameter import ParameterRates, binned_rates, swept_names
from attnsweep.orchestrator.analysis.rates.intervals import (
    RATE_COLUMNS,
    Rate,
    pooling,
    rate_label,
    share_label,
    trials_count_once,
    weights_of_trainings,
)
from attnsweep.orchestrator.analysis.role_emergence import (
    RoleEmergence,
    RoleHistory,
    emergence_of,
    layer_names_of,
    layer_title,
    role_histories,
)
from attnsweep.orchestrator.ledger.views import param_column
from attnsweep.search_spaces.sweep import Sweep

_MOST_MARKDOWN_COLUMNS = 4
"""The Markdown leaves out the table of roles by parameter if it would have more columns than this; the JSON has all
numbers."""
_LAYER_AND_ROLE = {"layer": pa.int32(), "role": str}


@dataclass(frozen=True, slots=True)
class RoleRate:
    """How often one role occurs in one layer at the end; `None` is any layer."""

    layer: int | None
    role: str
    rate: Rate
    head_share: float


@dataclass(frozen=True, slots=True)
class RoleRatesBy:
    """How often one role occurs in one layer at the end, in the bins of each swept parameter."""

    layer: int | None
    role: str
    by_parameter: tuple[ParameterRates, ...]


class RoleRates(Answer, tuple[RoleRate, ...]):
    """One `RoleRate` per layer and role, also as a table."""

    __slots__ = ()

    def _in_words(self) -> str:
        words = (f"{rate.role} in {layer_title((), rate.layer)} {share_label(rate.rate)}" for rate in self)
        return "; ".join(words) or "no heads that could have a role"

    def to_arrow(self) -> pa.Table:
        """One row per layer and role: the share of trainings in which some head has it, and of heads that have it."""
        columns = {**_LAYER_AND_ROLE, **RATE_COLUMNS, "head_share": float}
        return table(columns, ((rate.layer, rate.role, *rate.rate.row, rate.head_share) for rate in self))


class RoleRatesByParameter(Answer, tuple[RoleRatesBy, ...]):
    """One entry per layer and role, also as a table."""

    __slots__ = ()

    def _in_words(self) -> str:
        parameters = dict.fromkeys(by.parameter for role_rates in self for by in role_rates.by_parameter)
        return f"{', '.join(dict.fromkeys(role_rates.role for role_rates in self))} by {', '.join(parameters)}"

    def to_arrow(self) -> pa.Table:
        """One row per layer, role, parameter and bin: the share of trainings in which some head has the role."""
        columns = {**_LAYER_AND_ROLE, "parameter": str, "bin": str, "n_trials": int, **RATE_COLUMNS}
        rows = [
            (role_rates.layer, role_rates.role, by.title, bin_.label, bin_.n_trials, *bin_.rate.row)
            for role_rates in self
            for by in role_rates.by_parameter
            for bin_ in by.bins
        ]
        return table(columns, rows)


def role_rates(connection: duckdb.DuckDBPyConnection, spec: Sweep, *, any_layer: bool = False) -> RoleRates:
    """The share of trainings in which some head has the role, and of heads that have it. Failed and diverged trainings,
    and those without heads, are left out."""
    return _rates(role_histories(connection, any_layer=any_layer), spec)


def role_rates_by(
    connection: duckdb.DuckDBPyConnection, spec: Sweep, *, any_layer: bool = False
) -> RoleRatesByParameter:
    """As `role_rates`, in the bins of each parameter that the sweep varies."""
    return _rates_by(role_histories(connection, any_layer=any_layer), connection, spec)


def _rates(histories: Sequence[RoleHistory], spec: Sweep) -> RoleRates:
    pool, once, rates = pooling(spec), trials_count_once(spec), []
    for history in histories:
        weight = weights_of_trainings(history.trial, once_per_trial=once)
        head_share = float((weight * history.n_with).sum() / (weight * history.n_heads).sum())
        rates.append(RoleRate(history.layer, history.role, pool(list(history.counts().values())), head_share))
    return RoleRates(rates)


def _rates_by(
    histories: Sequence[RoleHistory], connection: duckdb.DuckDBPyConnection, spec: Sweep
) -> RoleRatesByParameter:
    columns = "".join(f", {param_column(name)}" for name in swept_names(spec))
    values = {trial: row for trial, *row in connection.execute(f"select trial{columns} from trials").fetchall()}
    rates_of_roles = []
    for history in histories:
        counts = history.counts()
        rates = binned_rates(spec, [values[trial] for trial in counts], list(counts.values()), pooling(spec))
        rates_of_roles.append(RoleRatesBy(history.layer, history.role, rates))
    return RoleRatesByParameter(rates_of_roles)


@dataclass(frozen=True, slots=True)
class RoleResults(Record):
    rates: tuple[RoleRate, ...]
    emergence: tuple[RoleEmergence, ...]
    by_parameter: tuple[RoleRatesBy, ...]
    layer_names: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """Those that occur or whose scores are measured, each once."""
        return list(dict.fromkeys(rate.role for rate in self.rates))

    def layer_name(self, layer: int | None) -> str:
        """Its number if it has no name."""
        if layer is None:
            return "any"
        return self.layer_names[layer] if layer < len(self.layer_names) else str(layer)

    def layer_title(self, layer: int | None) -> str:
        """`encoder self`, `layer 0`, `any layer`."""
        return layer_title(self.layer_names, layer)

    def rows(self) -> Iterator[tuple[RoleRate, RoleEmergence]]:
        """Sorted by role."""
        pairs = list(zip(self.rates, self.emergence, strict=True))
        yield from sorted(pairs, key=lambda pair: self.names.index(pair[0].role))

    def as_json(self) -> list[dict[str, Any]]:
        """Sorted by role."""
        return [
            {
                **self._named(rate),
                **rate.rate.as_json(),
                "head_share": rate.head_share,
                "median_before": when.median_before,
                "median_step": when.median_step,
                "median_share_of_steps": when.median_share,
            }
            for rate, when in self.rows()
        ]

    def by_parameter_as_json(self) -> list[dict[str, Any]]:
        return [
            {**self._named(rates), "by": [parameter.as_json() for parameter in rates.by_parameter]}
            for rates in self.by_parameter
        ]

    def _named(self, of: RoleRate | RoleRatesBy) -> dict[str, Any]:
        return {"role": of.role, "layer": of.layer, "layer_name": self.layer_name(of.layer)}

    def markdown_tables(self) -> Iterator[str]:
        """One table of all roles, and one for each parameter."""
        columns = ("role", "layer", "trainings with it (95% interval)", "heads", "median step of emergence")
        rows = [
            (rate.role, self.layer_name(rate.layer), rate_label(rate.rate), f"{rate.head_share:.1%}", step_label(when))
            for rate, when in self.rows()
        ]
        yield markdown_table(columns, rows)
        if len(self.by_parameter) > _MOST_MARKDOWN_COLUMNS:
            return
        names = [f"{rates.role}, {self.layer_name(rates.layer)}" for rates in self.by_parameter]
        for parameters in zip(*(rates.by_parameter for rates in self.by_parameter), strict=True):
            # All roles have the same bins (ranges of values) of a parameter, so one table can have a row for each bin
            # and a column for each role.
            bins = zip(*(parameter.bins for parameter in parameters), strict=True)
            cells = [(same[0].label, same[0].n_trials, *(rate_label(bin_.rate) for bin_ in same)) for same in bins]
            yield markdown_table([parameters[0].title, "trials", *names], cells)


def read_role_results(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> RoleResults | None:
    histories = role_histories(connection)
    if not histories:
        return None
    return RoleResults(
        _rates(histories, spec),
        emergence_of(histories, spec),
        _rates_by(histories, connection, spec),
        layer_names_of(spec.workload),
    )


def step_label(when: RoleEmergence) -> str:
    """`1,000 to 2,000 (25%)`: where a role emerges in the median training; `-` without a median."""
    if when.median_step is None:
        return "-"
    through = "" if when.median_share is None else f" ({when.median_share:.0%})"
    after = "" if when.median_before is None else f"{when.median_before:,} to "
    return f"{after}{when.median_step:,}{through}"
