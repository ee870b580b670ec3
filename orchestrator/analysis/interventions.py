"""What needs what: how much sooner or later trainings reach something with an intervention than without.

A pair are two trainings with the same seed and the same parameters but for `intervention`, which is null in one of
them. A pair says which of the two reached it first, if the other had not by then. In proportional hazards with a
baseline of its own for each pair (Cox's model stratified by pair), the chance that the one with the intervention is
first is r / (1 + r), where r is the ratio of their hazards. So the estimate of r is the number of pairs where it came
sooner over that where it came later, and Clopper and Pearson's exact interval of that share gives one of r. Pairs that
reached it at the same probe, or of which neither is known to be first, say nothing.

What is random is the seed: the initialization, the data and their order. Conditioned on are the configurations of the
sweep, over which pairs are pooled. Intervals are not adjusted for the number of rows.

Source: Holt & Prentice 1974, Biometrika 61 (paired times); Clopper & Pearson 1934. Axes: R training, N pair.
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import TypeAlias

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.answer import Answer, table
from attnsweep.orchestrator.analysis.onset.events import event_names, event_times
from attnsweep.orchestrator.analysis.onset.levels import level_names, level_times
from attnsweep.orchestrator.analysis.onset.onset import outcome_onsets
from attnsweep.orchestrator.analysis.rates.intervals import exact_interval
from attnsweep.orchestrator.analysis.roles.history import layer_names_of, layer_title, role_histories
from attnsweep.orchestrator.ledger.sql import IS_JUDGED, identifier, param_column
from attnsweep.workloads.interventions import INTERVENTION

_SOLVED = "solved"
_Pairs: TypeAlias = dict[str, list[tuple[tuple[int, int], tuple[int, int]]]]
"""By intervention the pairs: trial and replicate of the training with it, and of the one without."""


@dataclass(frozen=True, slots=True)
class InterventionRatio:
    """The hazard of reaching something with an intervention over that without.

    Attributes:
        what: The outcome `solved`, a reference level that the loss falls below, an event, or a role with its layer.
        intervention: The text of the intervention.
        n_pairs: Pairs of which both are known.
        n_with, n_without: Trainings of them that reached it with the intervention, and without.
        median_with, median_without: The step by which half of these have reached it; `None` if there are none.
        n_sooner, n_later: Pairs in which the one with the intervention is known to have come first, and last.
        ratio: Their ratio; `None` if it is infinite, or without such pairs.
        low, high: Its 95% interval; `None` where it is open, or without such pairs.
    """

    what: str
    intervention: str
    n_pairs: int
    n_with: int
    n_without: int
    median_with: int | None
    median_without: int | None
    n_sooner: int
    n_later: int
    ratio: float | None
    low: float | None
    high: float | None

    @property
    def label(self) -> str:
        """`0.4 [0.2, 0.9]`, `0 [0, 0.1]`, `∞ [8, ∞]`, or `-` where no pair says anything."""
        if self.low is None:
            return "-"
        ratio, low, high = ("∞" if each is None else _digits(each) for each in (self.ratio, self.low, self.high))
        return f"{ratio} [{low}, {high}]"


@dataclass(frozen=True, slots=True, repr=False)
class InterventionRatios(Answer):
    """The ratios of all that trainings reach, for each intervention."""

    ratios: tuple[InterventionRatio, ...]

    def _in_words(self) -> str:
        n = len({each.intervention for each in self.ratios})
        return f"{n} interventions, {max((each.n_pairs for each in self.ratios), default=0)} pairs each at most"

    def to_arrow(self) -> pa.Table:
        """One row for each intervention and what is reached, `ratio` with its 95% interval `low` to `high`."""
        columns: dict[str, type] = {"what": str, "intervention": str}
        numbers = ("n_pairs", "n_with", "n_without", "median_with", "median_without", "n_sooner", "n_later")
        columns |= dict.fromkeys(numbers, int)
        return table(columns | dict.fromkeys(("ratio", "low", "high"), float), map(astuple, self.ratios))


def read_interventions(connection: duckdb.DuckDBPyConnection, workload: str) -> InterventionRatios:
    """Reads the ratios of the outcome `solved`, and of all levels, events and roles that a training of a pair reached;
    none without pairs."""
    pairs = _read_pairs(connection)
    found = [
        paired_ratio(what, intervention, *(_at(places, of_rows, step, came) for places in zip(*of_one, strict=True)))
        for what, of_rows, step, came in (_reached(connection, workload) if pairs else ())
        for intervention, of_one in pairs.items()
    ]
    reached = {each.what for each in found if each.n_with + each.n_without}
    return InterventionRatios(tuple(each for each in found if each.what in reached))


def paired_ratio(
    what: str, intervention: str, of_with: NDArray[np.int64], of_without: NDArray[np.int64]
) -> InterventionRatio:
    """The ratio from pairs.

    Args:
        of_with, of_without: (N, 3) whether the training is known, the step, and whether it was reached there; if not,
            the training is censored there.
    """
    known = (of_with[:, 0] > 0) & (of_without[:, 0] > 0)
    (step, came), (other, other_came) = (each[known, 1:].T for each in (of_with, of_without))
    came, other_came = came > 0, other_came > 0
    n_sooner = int((came & (step < other + ~other_came)).sum())
    n_later = int((other_came & (other < step + ~came)).sum())
    medians = (_median(step[came]), _median(other[other_came]))
    counts = (int(known.sum()), int(came.sum()), int(other_came.sum()), *medians, n_sooner, n_later)
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
    return int(np.quantile(steps, 0.5, method="inverted_cdf")) if steps.size else None


def _read_pairs(connection: duckdb.DuckDBPyConnection) -> _Pairs:
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
    found: _Pairs = {}
    for intervention, *places in rows:
        found.setdefault(intervention, []).append(((places[0], places[1]), (places[2], places[3])))
    return found


_Reached: TypeAlias = tuple[str, Sequence[tuple[int, int]], NDArray[np.int64], NDArray[np.bool_]]
"""What is reached; and of some trainings trial and replicate, the step, and whether it was reached there."""


def _reached(connection: duckdb.DuckDBPyConnection, workload: str) -> Iterator[_Reached]:
    judged = connection.execute(
        f"select trial, replicate from trainings where {IS_JUDGED} order by trial, replicate"
    ).fetchall()
    times = {_SOLVED: outcome_onsets(connection, _SOLVED)}
    times |= {f"loss below {level}": level_times(connection, level) for level in level_names(connection)}
    times |= {event: event_times(connection, event) for event in event_names(connection)}
    for what, each in times.items():
        yield what, judged, each.step, each.came
    titles = layer_names_of(workload)
    for history in role_histories(connection):
        places = list(zip(history.trial.tolist(), history.replicate.tolist(), strict=True))
        yield f"{history.role}, {layer_title(titles, history.layer)}", places, history.step, history.emerged


def _at(
    places: Sequence[tuple[int, int]],
    of_rows: Sequence[tuple[int, int]],
    step: NDArray[np.int64],
    came: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """(N, 3) of some trainings: whether it is known, the step, and whether it was reached."""
    row = {place: (1, at, has) for place, at, has in zip(of_rows, step.tolist(), came.tolist(), strict=True)}
    return np.array([row.get(place, (0, 0, 0)) for place in places], np.int64)
