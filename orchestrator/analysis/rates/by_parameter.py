"""The rate of an ending, over all trials and in the bins of each parameter."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import duckdb

from attnsweep.orchestrator.analysis.answer import Record
from attnsweep.orchestrator.analysis.labels import check_known, outcome_order, value_label
from attnsweep.orchestrator.analysis.rates.bins import Binning, coarse_bins, has_bin
from attnsweep.orchestrator.analysis.rates.intervals import Pooling, Rate, pooling
from attnsweep.orchestrator.ledger.views import IS_JUDGED, literal, outcomes_of, param_column
from attnsweep.search_spaces import measured
from attnsweep.search_spaces.dimensions import Categorical, Float, Int, Varied
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.vocabulary import OUTCOMES

MOST_PARAMETERS = 8
"""Parameters that a summary or a report shows each with its rates."""
_STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class Ending:
    """What a rate counts: the trainings that end stuck in any way, or those with one outcome.

    Attributes:
        outcome: An outcome's label, or `stuck` for all outcomes that count as stuck.
    """

    outcome: str = _STUCK
    detail: str | None = None

    @property
    def condition(self) -> str:
        """The SQL condition that selects these trainings."""
        outcome = _STUCK if self.outcome == _STUCK else f"outcome = {literal(self.outcome)}"
        return outcome if self.detail is None else f"{outcome} and outcome_detail = {literal(self.detail)}"

    @property
    def label(self) -> str:
        """Without underscores."""
        words = self.outcome.replace("_", " ")
        return words if self.detail is None else f"{words} ({self.detail.replace('_', ' ')})"

    @property
    def share_label(self) -> str:
        """`stuck rate` or, for example, `share of marginal (mean)`."""
        return "stuck rate" if self == STUCK else f"share of {self.label}"

    @property
    def verb(self) -> str:
        """`end stuck`, `end as marginal (mean)`."""
        return f"end {self.label}" if self.outcome == _STUCK else f"end as {self.label}"

    @property
    def file_label(self) -> str:
        """With underscores in place of spaces, for names of files."""
        return self.label.replace(" ", "_")


STUCK = Ending()
SOLVED = Ending("solved")


@dataclass(frozen=True, slots=True)
class Question:
    """The rate that a report is about."""

    ending: Ending = STUCK
    is_sought: bool = False

    @property
    def best_by(self) -> Ending:
        """What marks the best region: for the stuck rate, the share of solved trainings."""
        return SOLVED if self.ending == STUCK else self.ending

    @property
    def wants_more(self) -> bool:
        return self.ending == STUCK or self.is_sought


def read_question(connection: duckdb.DuckDBPyConnection, spec: Sweep, outcome: str | None) -> Question:
    """The given outcome's rate; else the first objective that is a rate; else the stuck rate."""
    if outcome is not None:
        known = outcomes_of(connection).get(outcome)
        is_good = outcome == "solved" or (outcome not in OUTCOMES and known is not None and not known.is_stuck)
        return Question(read_ending(connection, outcome), is_good)
    rate = next(
        (objective for objective in spec.objectives if isinstance(objective, measured.Rate | measured.StuckRate)), None
    )
    if isinstance(rate, measured.Rate):
        return Question(read_ending(connection, rate.outcome), rate.direction == "maximize")
    return Question()


def read_ending(connection: duckdb.DuckDBPyConnection, outcome: str = _STUCK, detail: str | None = None) -> Ending:
    if (outcome, detail) == (_STUCK, None):
        return STUCK
    seen = connection.execute(f"select distinct outcome, stuck, outcome_detail from trainings where {IS_JUDGED}")
    rows = seen.fetchall()
    judged = {label for label, outcome_type in outcomes_of(connection).items() if outcome_type.is_judged}
    known = sorted({*judged, *(row[0] for row in rows)}, key=outcome_order)
    none, advice = "no detail: this outcome has none in this sweep", "see docs/outcomes.md"
    check_known("outcome", outcome, [_STUCK, *known], none, advice)
    if detail is not None:
        inside = [row for row in rows if (row[1] if outcome == _STUCK else row[0] == outcome)]
        check_known("detail", detail, sorted({row[2] for row in inside if row[2]}), none, advice)
    return Ending(outcome, detail)


CountedValue: TypeAlias = tuple[object, tuple[int, int]]
"""A parameter's value in one trial, and the trial's `(n, k)`: the trainings that count, and those with the ending."""


@dataclass(frozen=True, slots=True)
class RateBin(Record):
    """The rate over the trials in one bin of a parameter.

    Attributes:
        label: The value, or the range `low..high`; only the last bin includes its upper end.
        low, high: The ends of the bin, cut to the range tried; `None` for a categorical value.
        rate: The rate over the trainings of these trials, without failed and pruned ones; for roles of heads, also
            without diverged ones.
    """

    label: str
    low: float | None
    high: float | None
    n_trials: int
    rate: Rate

    json_keys = ("label", "n_trials", "**rate")


@dataclass(frozen=True, slots=True)
class ParameterRates(Record):
    """A rate in each bin of one parameter.

    Attributes:
        where: For a conditional parameter, the condition under which it varies (`variant=positions_only`); else empty.
        bins: In the order of the parameter's values; bins without trials are included.
    """

    parameter: str
    where: str
    dimension: Varied
    bins: tuple[RateBin, ...]

    json_keys = ("parameter", "where=condition", "bins")

    @property
    def title(self) -> str:
        """The name, with the condition under which it varies, if any, in parentheses."""
        return f"{self.parameter} ({self.where})" if self.where else self.parameter

    @property
    def condition(self) -> str | None:
        return self.where or None


def stuck_rate(connection: duckdb.DuckDBPyConnection, *specs: Sweep) -> Rate:
    """Over all trials. A diverged training counts as not stuck; a failed or pruned one is left out."""
    return pooling(*specs)([(n, k) for _, n, k in counts_by_trial(connection)])


def solved_rate(connection: duckdb.DuckDBPyConnection, *specs: Sweep) -> Rate:
    """Over all trials."""
    return pooling(*specs)(connection.execute("select n_judged, n_solved from trials").fetchall())


def loss_median(connection: duckdb.DuckDBPyConnection) -> float | None:
    """The median of each trial's median loss. A loss that is not finite counts as infinite, and an infinite result is
    `None`."""
    ((median,),) = connection.execute(
        "select quantile_cont(coalesce(loss_median, 'inf'), 0.5) from trials where n_judged > 0"
    ).fetchall()
    return median if median is not None and math.isfinite(median) else None


def rates_by(
    connection: duckdb.DuckDBPyConnection, spec: Sweep, ending: Ending = STUCK, binning: Binning = coarse_bins
) -> tuple[ParameterRates, ...]:
    """In the order of the search space."""
    names = swept_names(spec)
    rows = counts_by_trial(connection, names, ending)
    return binned_rates(spec, [row[3:] for row in rows], [(n, k) for _, n, k, *_ in rows], pooling(spec), binning)


def counts_by_trial(
    connection: duckdb.DuckDBPyConnection, names: Sequence[str] = (), ending: Ending = STUCK
) -> list[tuple[Any, ...]]:
    """For each trial its number, how many trainings neither failed nor were pruned, how many of those have the ending,
    and its values of `names`."""
    counted = (
        f"select trial, count(*) filter ({IS_JUDGED}) as n, count(*) filter ({IS_JUDGED} and {ending.condition}) as k"
        " from trainings group by trial"
    )
    if not names:
        return connection.execute(f"{counted} order by trial").fetchall()
    columns = "".join(f", {param_column(name)}" for name in names)
    return connection.execute(
        f"with counted as ({counted}) select trial, n, k{columns} from counted join trials using (trial) order by trial"
    ).fetchall()


def swept_names(spec: Sweep) -> list[str]:
    """Those that vary only under a condition come last."""
    return [*spec.varied(), *spec.conditional()]


def binned_rates(
    spec: Sweep,
    rows: Sequence[Sequence[object]],
    counts: Sequence[tuple[int, int]],
    pool: Pooling,
    binning: Binning = coarse_bins,
) -> tuple[ParameterRates, ...]:
    """Like `rates_by`, from each trial's values of `swept_names` and its `(n, k)`."""
    values = {name: [row[index] for row in rows] for index, name in enumerate(swept_names(spec))}
    rates = []
    for name in filter(values.__contains__, spec.parameters()):
        counted = list(zip(values[name], counts, strict=True))
        condition = spec.conditional().get(name)
        if condition is None:
            rates.append(rates_in_bins(name, spec.varied()[name], counted, pool, binning))
            continue
        on_values = values.get(condition.on, [spec.fixed().get(condition.on)] * len(rows))
        among = ", ".join(value_label(value) for value in condition.among)
        named = f"{condition.on}={among}" if len(condition.among) == 1 else f"{condition.on} in {among}"
        for where, dimension, is_among in ((named, condition.then, True), (f"not {named}", condition.otherwise, False)):
            if isinstance(dimension, Categorical | Float | Int):
                pairs = zip(counted, on_values, strict=True)
                inside = [pair for pair, value in pairs if (value in condition.among) == is_among]
                rates.append(rates_in_bins(name, dimension, inside, pool, binning, where))
    return tuple(rates)


def rates_in_bins(
    parameter: str, dimension: Varied, counted: Sequence[CountedValue], pool: Pooling, binning: Binning, where: str = ""
) -> ParameterRates:
    """From counts of each trial's trainings."""
    counted = [(value, count) for value, count in counted if has_bin(dimension, value)]
    values = [value for value, _ in counted]
    bins = binning(dimension, values)
    members: list[list[tuple[int, int]]] = [[] for _ in range(len(bins))]
    for index, (_, count) in zip(bins.place(values), counted, strict=True):
        members[index].append(count)
    rates = (RateBin(*ends, len(inside), pool(inside)) for ends, inside in zip(bins.ranges(), members, strict=True))
    return ParameterRates(parameter, where, dimension, tuple(rates))
