"""The rate of an ending, over all trials and in the bins of each parameter."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from attnsweep.orchestrator.analysis.labels import check_known, outcome_order, value_label
from attnsweep.orchestrator.analysis.rates.bins import (
    Binning,
    coarse_bins,
    dimension_of,
    has_bin,
    values_of,
)
from attnsweep.orchestrator.analysis.rates.intervals import RATE_COLUMNS, Rate, pooling
from attnsweep.orchestrator.analysis.tables import Columns, Row, table_of
from attnsweep.orchestrator.ledger.views import IS_JUDGED, literal, names_with, outcomes_of, param_column
from attnsweep.search_spaces import measured
from attnsweep.search_spaces.dimensions import Categorical, Float, Int, Scalar, Varied
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.vocabulary import OUTCOMES

MAX_PARAMETERS = 8
"""At most so many have their rates in a summary, or a figure in a report."""
_STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class Ending:
    """What a rate counts: the trainings with one outcome or, for `stuck`, with any that counts as stuck."""

    outcome: str = _STUCK

    @property
    def condition(self) -> str:
        """Selects these trainings in SQL."""
        return _STUCK if self == STUCK else f"outcome = {literal(self.outcome)}"

    @property
    def label(self) -> str:
        return self.outcome.replace("_", " ")

    @property
    def share_label(self) -> str:
        """`stuck rate` or, for example, `share of marginal`."""
        return "stuck rate" if self == STUCK else f"share of {self.label}"

    @property
    def verb(self) -> str:
        """`end stuck`, `end as marginal`."""
        return f"end {self.label}" if self == STUCK else f"end as {self.label}"


STUCK = Ending()
SOLVED = Ending("solved")


@dataclass(frozen=True, slots=True)
class Question:
    """The rate that a report is about; `is_sought`: whether a high rate of `ending` is good."""

    ending: Ending = STUCK
    is_sought: bool = False

    @property
    def best_by(self) -> Ending:
        """What marks the best region: for the stuck rate, the share of solved trainings."""
        return SOLVED if self.ending == STUCK else self.ending

    @property
    def wants_more(self) -> bool:
        """Whether a high rate of `best_by` is good."""
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


def read_ending(connection: duckdb.DuckDBPyConnection, outcome: str = _STUCK) -> Ending:
    seen = connection.execute(f"select distinct outcome from trainings where {IS_JUDGED}").fetchall()
    judged = {label for label, declared in outcomes_of(connection).items() if declared.is_judged}
    known = sorted({*judged, *(label for (label,) in seen)}, key=outcome_order)
    check_known("outcome", outcome, [_STUCK, *known], "", "see docs/outcomes.md")
    return Ending(outcome)


def rate_of(connection: duckdb.DuckDBPyConnection, ending: Ending, *specs: Sweep) -> Rate:
    """Over all trials. A diverged training counts as not stuck; a failed or pruned one is left out."""
    return pooling(*specs)([(n, k) for _, n, k in counts_by_trial(connection, (), ending)])


def loss_median(connection: duckdb.DuckDBPyConnection) -> float | None:
    """The median over trials of their median loss. Losses that are not finite count as infinite; `None` if infinite."""
    ((median,),) = connection.execute(
        "select quantile_cont(coalesce(loss_median, 'inf'), 0.5) from trials where n_judged > 0"
    ).fetchall()
    return median if median is not None and math.isfinite(median) else None


COLUMNS: Columns = {
    **dict.fromkeys(("parameter", "condition", "scale", "bin"), str),
    **{"low_end": float, "high_end": float, "n_trials": int},
    **RATE_COLUMNS,
}


def rates_by(
    connection: duckdb.DuckDBPyConnection,
    specs: Sequence[Sweep],
    ending: Ending = STUCK,
    binning: Binning = coarse_bins,
    names: Sequence[str] | None = None,
) -> pa.Table:
    """A row for each bin of each parameter, also without trials: the rate over the trainings that neither failed nor
    were pruned. `names`: by default the parameters that `differing` gives.

    A conditional parameter has a set of bins for each branch that varies, told apart by `condition`. `scale` is `log`,
    `linear` or `whole`; of a choice it is null, and so are the ends of a bin.
    """
    names = differing(connection, specs) if names is None else names
    counts = {trial: (n, k) for trial, n, k in counts_by_trial(connection, (), ending)}
    return table_of(COLUMNS, binned_rates(specs, read_values(connection, specs, names), counts, binning))


def differing(connection: duckdb.DuckDBPyConnection, specs: Sequence[Sweep]) -> list[str]:
    """The parameters that a sweep varies, in the order of its search space, and those in which sweeps differ."""
    names = dict.fromkeys(name for spec in specs for name in spec.parameters() if name in swept_names(spec))
    if len(specs) > 1:
        for name, of_trial in values_of(connection, names_with(connection, "param_")).items():
            if len({*of_trial.values()}) > 1:
                names.setdefault(name)
    return list(names)


def read_values(
    connection: duckdb.DuckDBPyConnection, specs: Sequence[Sweep], names: Sequence[str]
) -> dict[str, dict[int, Scalar]]:
    """By parameter and trial; of one that the ledger has no column for yet, none."""
    known, declared = names_with(connection, "param_"), specs[0].parameters()
    found = values_of(connection, [name for name in names if name in known or name not in declared])
    return {name: found.get(name, {}) for name in names}


def counts_by_trial(
    connection: duckdb.DuckDBPyConnection, names: Sequence[str] = (), ending: Ending = STUCK
) -> list[tuple[Any, ...]]:
    """For each trial its number, how many trainings neither failed nor were pruned, how many of these have the ending,
    and its values of the parameters `names`."""
    columns = "".join(f", any_value({param_column(name)})" for name in names)
    return connection.execute(
        f"select trial, count(*) filter ({IS_JUDGED}), count(*) filter ({IS_JUDGED} and {ending.condition}){columns}"
        " from trainings group by trial order by trial"
    ).fetchall()


def swept_names(spec: Sweep) -> list[str]:
    """Those that vary only under a condition come last."""
    return [*spec.varied(), *spec.conditional()]


def binned_rates(
    specs: Sequence[Sweep],
    values: Mapping[str, Mapping[int, Scalar]],
    counts: Mapping[int, tuple[int, int]],
    binning: Binning = coarse_bins,
) -> list[Row]:
    """The rows of `rates_by`, from each trial's values and its `(n, k)`."""
    pool, rows = pooling(*specs), []
    for name in values:
        for condition, dimension, kept in _parts(specs, name, values):
            bins = binning(dimension, [*kept.values()])
            members: list[list[int]] = [[] for _ in range(len(bins))]
            for trial, at in zip(kept, bins.place([*kept.values()]), strict=True):
                members[at].append(trial)
            shared = {"parameter": name, "condition": condition, "scale": _scale(dimension)}
            for (label, low, high), inside in zip(bins.ranges(), members, strict=True):
                rate = pool([counts[trial] for trial in inside if trial in counts])
                ends = {"bin": label, "low_end": low, "high_end": high, "n_trials": len(inside)}
                rows.append(shared | ends | rate.columns())
    return rows


def by_title(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The bins of each parameter, by its name with a condition in parentheses."""
    titles: dict[str, list[Row]] = {}
    for row in rows:
        condition = f" ({row['condition']})" if row["condition"] else ""
        titles.setdefault(f"{row['parameter']}{condition}", []).append(row)
    return titles


def _scale(dimension: Varied) -> str | None:
    match dimension:
        case Categorical():
            return None
        case Int():
            return "whole"
    return "log" if dimension.log else "linear"


def _parts(
    specs: Sequence[Sweep], name: str, values: Mapping[str, Mapping[int, Scalar]]
) -> Iterator[tuple[str | None, Varied, dict[int, Scalar]]]:
    """A parameter's range with its values by trial; of a conditional one the range under each condition."""
    condition = specs[0].conditional().get(name) if len(specs) == 1 else None
    if condition is None:
        dimension, kept = dimension_of(specs, name, values[name])
        is_somewhere = len(kept) < len(values[name]) and name not in specs[0].varied()
        if dimension is not None:
            yield "where it is set" if is_somewhere else None, dimension, kept
        return
    on = values.get(condition.on, dict.fromkeys(values[name], specs[0].fixed().get(condition.on)))
    among = ", ".join(map(value_label, condition.among))
    named = f"{condition.on}={among}" if len(condition.among) == 1 else f"{condition.on} in {among}"
    for where, branch, is_among in ((named, condition.then, True), (f"not {named}", condition.otherwise, False)):
        if isinstance(branch, Categorical | Float | Int):
            inside = {
                trial: value for trial, value in values[name].items() if (on[trial] in condition.among) == is_among
            }
            yield where, branch, {trial: value for trial, value in inside.items() if has_bin(branch, value)}
