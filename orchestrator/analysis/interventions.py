"""How much sooner or later trainings reach a goal (an outcome, an event or a role) with an intervention than without.

A pair is two trainings with the same seed and the same parameters except `intervention`, which is null in one of them.
A pair is informative if one training is known to have reached the goal first. The ratio is the number of pairs where
the training with the intervention was sooner over the number where it was later; its interval is Clopper and Pearson's
exact one. Pairs that reached the goal at the same probe, or of which neither training is known to be first, are not
informative.

The intervals take only the seed as random: the initialization, the data and their order. They hold for the
configurations of this sweep, over which pairs are pooled, and are not adjusted for the number of goals.

Source: Holt & Prentice 1974, Biometrika 61 (paired times); Clopper & Pearson 1934. Axes: R training, N pair.
"""

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import TypeAlias

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.answer import Answer, table
from attnsweep.orchestrator.analysis.onset_times import (
    OnsetTimes,
    event_names,
    event_times,
    level_names,
    level_times,
    outcome_onsets,
)
from attnsweep.orchestrator.analysis.rates.intervals import exact_interval
from attnsweep.orchestrator.analysis.role_emergence import layer_names_of, layer_title, role_histories
from attnsweep.orchestrator.ledger.views import IS_JUDGED, identifier, param_column
from attnsweep.workloads.interventions import INTERVENTION

_Place: TypeAlias = tuple[int, int]
"""The trial and the replicate of a training."""


@dataclass(frozen=True, slots=True)
class InterventionRatio:
    """How much sooner trainings reach a goal with an intervention than without.

    Attributes:
        what: The goal: the outcome `solved`, a reference level that the loss falls below, an event, or a role with its
            layer.
        n_pairs: Pairs for which it is known of both trainings when they reached the goal or ended.
        before_with, before_without: The last step by which fewer than half of them may have.
        n_sooner, n_later: Pairs in which the training with the intervention is known to have reached the goal first,
            and pairs in which the training without it is.
    """

    what: str
    intervention: str
    n_pairs: int
    n_with: int
    n_without: int
    median_with: int | None
    median_without: int | None
    before_with: int | None
    before_without: int | None
    n_sooner: int
    n_later: int
    ratio: float | None
    low: float | None
    high: float | None

    @property
    def label(self) -> str:
        """The ratio with its interval: `0.4 [0.2, 0.9]`, `0 [0, 0.1]` or `∞ [8, ∞]`; `-` without informative pairs."""
        if self.low is None:
            return "-"
        ratio, low, high = ("∞" if each is None else _digits(each) for each in (self.ratio, self.low, self.high))
        return f"{ratio} [{low}, {high}]"


@dataclass(frozen=True, slots=True, repr=False)
class InterventionRatios(Answer):
    ratios: tuple[InterventionRatio, ...]

    def _in_words(self) -> str:
        n = len({ratio.intervention for ratio in self.ratios})
        return f"{n} interventions, {max((ratio.n_pairs for ratio in self.ratios), default=0)} pairs each at most"

    def to_arrow(self) -> pa.Table:
        """One row per goal and intervention; the 95% interval of `ratio` is `low` to `high`."""
        columns: dict[str, type] = {"what": str, "intervention": str}
        numbers = ("n_pairs", "n_with", "n_without", "median_with", "median_without")
        columns |= dict.fromkeys((*numbers, "before_with", "before_without", "n_sooner", "n_later"), int)
        return table(columns | dict.fromkeys(("ratio", "low", "high"), float), map(astuple, self.ratios))


def read_interventions(connection: duckdb.DuckDBPyConnection, workload: str) -> InterventionRatios:
    """From all pairs of trainings with the same seed."""
    pairs = _read_pairs(connection)
    ratios = []
    for what, ends in _reached(connection, workload) if pairs else ():
        for intervention, places in pairs.items():
            rows = [[ends.get(place, (0, 0, 0, 0)) for place in side] for side in zip(*places, strict=True)]
            ratios.append(paired_ratio(what, intervention, *(np.array(side, np.int64) for side in rows)))
    reached = {ratio.what for ratio in ratios if ratio.n_with + ratio.n_without}
    return InterventionRatios(tuple(ratio for ratio in ratios if ratio.what in reached))


def paired_ratio(
    what: str, intervention: str, of_with: NDArray[np.int64], of_without: NDArray[np.int64]
) -> InterventionRatio:
    """Estimates how much sooner trainings reach a goal with an intervention, from pairs with it and without.

    Args:
        of_with, of_without: (N, 4) the training with the intervention, and the one without, of each of N pairs: whether
            its end is known, the step, whether it had reached the goal at this step, and the last step at which it had
            not. If it did not reach the goal, it is only known not to have by the step (censored).
    """
    known = (of_with[:, 0] > 0) & (of_without[:, 0] > 0)
    (step, came, before), (other, other_came, other_before) = (
        training[known, 1:].T for training in (of_with, of_without)
    )
    came, other_came = came > 0, other_came > 0
    n_sooner = int((came & (step < other + ~other_came)).sum())
    n_later = int((other_came & (other < step + ~came)).sum())
    medians = _median(step[came]), _median(other[other_came])
    medians_before = _median(before[came]), _median(other_before[other_came])
    counts = (int(known.sum()), int(came.sum()), int(other_came.sum()), *medians, *medians_before, n_sooner, n_later)
    if not n_sooner + n_later:
        return InterventionRatio(what, intervention, *counts, None, None, None)
    low, high = exact_interval(n_sooner, n_sooner + n_later)
    ratio = None if not n_later else n_sooner / n_later
    return InterventionRatio(
        what, intervention, *counts, ratio, low / (1 - low), None if high == 1 else high / (1 - high)
    )


def _digits(ratio: float) -> str:
    return f"{ratio:.2g}" if ratio < 100 else f"{ratio:,.0f}"


def _median(steps: NDArray[np.int64]) -> int | None:
    median = int(np.quantile(steps, 0.5, method="inverted_cdf")) if steps.size else -1
    return None if median < 0 else median


def _read_pairs(connection: duckdb.DuckDBPyConnection) -> dict[str, list[tuple[_Place, _Place]]]:
    columns = [name for name, *_ in connection.execute("select * from trainings limit 0").description]
    own = param_column(INTERVENTION)
    if f"param_{INTERVENTION}" not in columns:
        return {}
    others = [identifier(name) for name in columns if name.startswith("param_") and identifier(name) != own]
    same = " and ".join(f"a.{name} is not distinct from b.{name}" for name in ("workload", "seed", *others))
    rows = connection.execute(
        f"select a.{own}, a.trial, a.replicate, b.trial, b.replicate from trainings a join trainings b on {same}"
        f" where a.{own} is not null and b.{own} is null order by all"
    ).fetchall()
    pairs: dict[str, list[tuple[_Place, _Place]]] = {}
    for intervention, *places in rows:
        pairs.setdefault(intervention, []).append(((places[0], places[1]), (places[2], places[3])))
    return pairs


def _reached(
    connection: duckdb.DuckDBPyConnection, workload: str
) -> Iterator[tuple[str, dict[_Place, tuple[int, int, bool, int]]]]:
    judged = connection.execute(
        f"select trial, replicate from trainings where {IS_JUDGED} order by trial, replicate"
    ).fetchall()
    times = {"solved": outcome_onsets(connection, "solved")}
    times |= {f"loss below {level}": level_times(connection, level) for level in level_names(connection)}
    times |= {event: event_times(connection, event) for event in event_names(connection)}
    reached = [(what, judged, onsets) for what, onsets in times.items()]
    titles = layer_names_of(workload)
    for history in role_histories(connection):
        what = f"{history.role}, {layer_title(titles, history.layer)}"
        places = list(zip(history.trial.tolist(), history.replicate.tolist(), strict=True))
        reached.append((what, places, OnsetTimes(history.trial, history.step, history.emerged, history.before)))
    for what, places, onsets in reached:
        ends = zip(*(each.tolist() for each in (onsets.step, onsets.came, onsets.before)), strict=True)
        yield what, {place: (1, *end) for place, end in zip(places, ends, strict=True)}
