"""What became of a sweep, read from the ledger's views: stuck rates by parameter, the best trial, outcomes."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import duckdb
import numpy as np

from orchestrator.analysis.completeness import complete_trials
from orchestrator.analysis.intervals import Rate, mean_rate, pooled_rate, trial_rate
from orchestrator.ledger.sql_text import param_column
from search_spaces.dimensions import Categorical, Conditional, Dimension, Float, Int, Scalar, Varied
from search_spaces.objective import objective_value
from search_spaces.replication import Sequential
from search_spaces.sweep import LossQuantile, Sweep

_MOST_LINEAR_BINS = 5

Pooling: TypeAlias = Callable[[Sequence[tuple[int, int]]], Rate]
"""From (trainings counted, of them stuck) of several trials to one rate."""


@dataclass(frozen=True, slots=True)
class RateBin:
    """A rate, such as the stuck rate, of the trials with a parameter in one bin.

    Attributes:
        label: The value, or the range `low..high` of which the last bin alone holds its upper end.
        low, high: The part of it that the sweep draws from; `None` for a categorical value.
        n_trials: Trials that fell into it.
        rate: Of their trainings, failed ones left out; of roles, diverged ones too.
    """

    label: str
    low: float | None
    high: float | None
    n_trials: int
    rate: Rate


@dataclass(frozen=True, slots=True)
class ParameterRates:
    """A rate, such as the stuck rate, by one swept parameter.

    Attributes:
        parameter: Its name.
        where: For a conditional parameter, the trials that are meant (`variant=positions_only`); else empty.
        dimension: How it varies there.
        bins: In the order of its values. Bins without trials are among them.
    """

    parameter: str
    where: str
    dimension: Varied
    bins: tuple[RateBin, ...]

    @property
    def title(self) -> str:
        """Its name, and where it is conditional the trials that are meant."""
        return f"{self.parameter} ({self.where})" if self.where else self.parameter

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "parameter": self.parameter,
            "where": self.where or None,
            "bins": [{"label": each.label, "n_trials": each.n_trials} | each.rate.as_json() for each in self.bins],
        }


@dataclass(frozen=True, slots=True)
class BestTrial:
    """The trial that the sweep's objective prefers.

    Attributes:
        trial: Its number.
        value: Its objective.
        parameters: Those that the sweep varies.
        rate: Its stuck rate.
    """

    trial: int
    value: float
    parameters: dict[str, Scalar]
    rate: Rate


def stuck_rate(connection: duckdb.DuckDBPyConnection, *specs: Sweep) -> Rate:
    """The stuck rate over all trials of these sweeps; diverged trainings count as not stuck, failed ones not at all."""
    return pooling(*specs)([(n, k) for _, n, k in _trial_counts(connection, [])])


def rates_by(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> tuple[ParameterRates, ...]:
    """The stuck rate by each parameter that the sweep varies, in the order of its search space.

    Bins: decades (powers of ten) of a logarithmic range, up to five equal parts of a linear one, each value of a
    categorical one. A conditional parameter is shown for each of its branches that varies.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
    """
    names = swept_names(spec)
    rows = _trial_counts(connection, names)
    return binned_rates(spec, [row[3:] for row in rows], [(n, k) for _, n, k, *_ in rows], pooling(spec))


def pooling(*specs: Sweep) -> Pooling:
    """How the trials of these sweeps are taken together: by trainings, or each once where it chose how many."""
    return mean_rate if trials_count_once(*specs) else pooled_rate


def trials_count_once(*specs: Sweep) -> bool:
    """Whether a trial counts once, however many trainings it has: where that was decided by how they ended."""
    return any(isinstance(spec.replicates, Sequential) for spec in specs)


def swept_names(spec: Sweep) -> list[str]:
    """The parameters that a sweep varies, conditional ones last."""
    return [*spec.varied(), *spec.conditional()]


def binned_rates(
    spec: Sweep, rows: Sequence[Sequence[object]], counts: Sequence[tuple[int, int]], pool: Pooling
) -> tuple[ParameterRates, ...]:
    """Any rate by each parameter that the sweep varies, in the bins that `rates_by` describes.

    Args:
        spec: The sweep.
        rows: For each trial the values of `swept_names`.
        counts: For each trial its trainings counted, and those of them that the rate is of.
        pool: From `pooling`.
    """
    names = swept_names(spec)
    values = {name: [row[index] for row in rows] for index, name in enumerate(names)}
    found = []
    for name in spec.space:
        if name in spec.varied():
            found.append(_rates(name, "", spec.varied()[name], values[name], counts, pool))
        elif name in spec.conditional():
            condition = spec.conditional()[name]
            on = values.get(condition.on, [spec.fixed().get(condition.on)] * len(rows))
            found += _rates_by_branch(name, condition, on, values[name], counts, pool)
    return tuple(found)


def best_trial(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> BestTrial | None:
    """The complete trial with the best objective; among equals the lowest median loss. `None` where none is complete.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
    """
    names = swept_names(spec)
    complete = set(complete_trials(connection, spec.replicates))
    found = connection.execute(
        f"""
        select trial, list(outcome) filter (outcome != 'failed'),
            list(stuck) filter (outcome != 'failed'), list(eval_loss) filter (outcome != 'failed')
            {_columns(names)}
        from trainings group by trial having count(*) filter (outcome != 'failed') > 0
        """
    ).fetchall()
    rows = [row for row in found if row[0] in complete]
    if not rows:
        return None
    sign = 1.0 if spec.objective.direction == "minimize" else -1.0
    values = [sign * objective_value(spec.objective, *row[1:4]) for row in rows]
    least = min(values)
    equals = [row for row, value in zip(rows, values, strict=True) if value == least]
    best = min(equals, key=lambda row: (objective_value(LossQuantile(), *row[1:4]), row[0]))
    trial, _, stuck, _, *parameters = best
    rate = trial_rate(spec.replicates, sum(stuck), len(stuck))
    return BestTrial(trial, sign * least, dict(zip(names, parameters, strict=True)), rate)


def solved_rate(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> Rate:
    """The solved rate of a whole sweep; failed trainings are left out, as of the stuck rate."""
    return pooling(spec)(connection.execute("select n_trainings - n_failed, n_solved from trials").fetchall())


def loss_median(connection: duckdb.DuckDBPyConnection) -> float | None:
    """The median over trials of their median loss, one that is not finite above all others; `None` if it is not."""
    ((median,),) = connection.execute(
        "select quantile_cont(coalesce(loss_median, 'inf'), 0.5) from trials where n_trainings > n_failed"
    ).fetchall()
    return median if median is not None and math.isfinite(median) else None


def outcome_counts(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Trainings by outcome, most frequent first."""
    rows = connection.execute("select outcome, count(*) from trainings group by 1 order by 2 desc, 1").fetchall()
    return dict(rows)


def _trial_counts(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """One row per trial: trial, trainings counted, of them stuck, then the parameters `names`."""
    columns = "".join(f", {param_column(name)}" for name in names)
    return connection.execute(
        f"select trial, n_trainings - n_failed, n_stuck{columns} from trials order by trial"
    ).fetchall()


def _columns(names: Sequence[str]) -> str:
    return "".join(f", any_value({param_column(name)})" for name in names)


def _rates_by_branch(
    name: str,
    condition: Conditional,
    on: Sequence[object],
    values: Sequence[object],
    counts: Sequence[tuple[int, int]],
    pool: Pooling,
) -> list[ParameterRates]:
    among = ", ".join(value_label(value) for value in condition.among)
    named = f"{condition.on}={among}" if len(condition.among) == 1 else f"{condition.on} in {among}"
    holds = [value in condition.among for value in on]
    branches: list[tuple[str, Dimension, bool]] = [
        (named, condition.then, True),
        (f"not {named}", condition.otherwise, False),
    ]
    found = []
    for where, dimension, wanted in branches:
        if isinstance(dimension, Categorical | Float | Int):
            inside = [index for index, held in enumerate(holds) if held == wanted]
            found.append(
                _rates(
                    name, where, dimension, [values[each] for each in inside], [counts[each] for each in inside], pool
                )
            )
    return found


def _rates(
    name: str,
    where: str,
    dimension: Varied,
    values: Sequence[object],
    counts: Sequence[tuple[int, int]],
    pool: Pooling,
) -> ParameterRates:
    ranges, place = place_in_bins(dimension, values)
    members: list[list[tuple[int, int]]] = [[] for _ in ranges]
    for index, count in zip(place, counts, strict=True):
        members[index].append(count)
    return ParameterRates(
        name,
        where,
        dimension,
        tuple(
            RateBin(label, low, high, len(inside), pool(inside))
            for (label, low, high), inside in zip(ranges, members, strict=True)
        ),
    )


def place_in_bins(
    dimension: Varied, values: Sequence[object]
) -> tuple[list[tuple[str, float | None, float | None]], list[int]]:
    """The bins of `rates_by` for one parameter, as label and ends, and for each value the number of its bin."""
    if isinstance(dimension, Categorical):
        ranges: list[tuple[str, float | None, float | None]] = [
            (value_label(choice), None, None) for choice in dimension.choices
        ]
        return ranges, [dimension.choices.index(value) for value in values]
    edges = _edges(dimension)
    place = np.searchsorted(edges[1:-1], np.array(values, dtype=np.float64), side="right").tolist()
    return [_range(dimension, low, high) for low, high in itertools.pairwise(edges)], place


def _edges(dimension: Float | Int) -> list[float]:
    """Where bins end, in rising order; whole-numbered bins hold their lower edge and not their upper one."""
    if dimension.log:
        first = math.floor(math.log10(dimension.low))
        last = max(math.ceil(math.log10(dimension.high)), first + 1)
        return [float(f"1e{power}") for power in range(first, last + 1)]
    if isinstance(dimension, Int):
        n_values = dimension.high - dimension.low + 1
        n_bins = min(n_values, _MOST_LINEAR_BINS)
        return [float(dimension.low + n_values * index // n_bins) for index in range(n_bins + 1)]
    if dimension.low == dimension.high:
        return [dimension.low, dimension.high]
    return [float(edge) for edge in np.linspace(dimension.low, dimension.high, _MOST_LINEAR_BINS + 1)]


def _range(dimension: Float | Int, low: float, high: float) -> tuple[str, float, float]:
    if dimension.log:
        label = f"1e{round(math.log10(low))}..1e{round(math.log10(high))}"
    elif isinstance(dimension, Int):
        high -= 1
        label = f"{low:.0f}" if low == high else f"{low:.0f}..{high:.0f}"
    else:
        label = f"{low:.3g}..{high:.3g}"
    return label, max(low, dimension.low), min(high, dimension.high)


def value_label(value: object) -> str:
    """A parameter's value as a user writes it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:g}"
    return str(value)
