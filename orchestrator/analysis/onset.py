"""When trainings come to something, a role or an outcome, group by group. Axes: R training."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.grouping import Group
from attnsweep.orchestrator.analysis.roles.emergence import CurvePoint, emergence_curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HISTORIES = """
select trial, outcome = $outcome as came, diverged_step is not null or n_steps < param_n_steps or outcome = 'solved'
    as ended, case when came then onset_step else n_steps end as step, param_n_steps as budget
from trainings where outcome <> 'failed' order by trial, replicate
"""


@dataclass(frozen=True, slots=True)
class OnsetCurve:
    """The share of a group's trainings that have come to it, by step.

    Attributes:
        label: The group.
        n_trials, n_trainings: In it.
        n_came: Trainings of it that came to it.
        median_step: Of those; `None` where there are none.
        curve: Kaplan and Meier's estimate, as in `emergence`; up to 64 points.
    """

    label: str
    n_trials: int
    n_trainings: int
    n_came: int
    median_step: float | None
    curve: tuple[CurvePoint, ...]


@dataclass(frozen=True, slots=True)
class Onset:
    """When trainings come to something.

    Attributes:
        what: The role or the outcome.
        by: What the groups differ in; empty for one group of all.
        curves: One for each group that has trainings.
    """

    what: str
    by: str
    curves: tuple[OnsetCurve, ...]

    def to_arrow(self) -> pa.Table:
        """One row per group and step: `share` with `low` and `high`, its pointwise 95% interval."""
        rows = [(each.label, point) for each in self.curves for point in each.curve]
        columns = {name: [getattr(point, name) for _, point in rows] for name in ("step", "share", "low", "high")}
        return pa.table({"group": [label for label, _ in rows], **columns})

    def plot(self) -> "Figure":
        """The curves with their bands."""
        from attnsweep.orchestrator.analysis.figures.answers import onset_figure

        return onset_figure(self)


@dataclass(frozen=True, eq=False, slots=True)
class Histories:
    """When each training came to something, or until when it had not.

    Attributes:
        trial: (R,) of the training.
        step: (R,) at which it came, or of censoring.
        came: (R,) false is censored.
    """

    trial: NDArray[np.int64]
    step: NDArray[np.int64]
    came: NDArray[np.bool_]

    def of(self, trials: Iterable[int]) -> "Histories":
        """Those of some trials."""
        inside = np.isin(self.trial, list(trials))
        return Histories(self.trial[inside], self.step[inside], self.came[inside])


def onset_curve(label: str, histories: Histories, *, once_per_trial: bool = False) -> OnsetCurve:
    """The curve of one group, which has at least one training."""
    steps = histories.step[histories.came]
    return OnsetCurve(
        label,
        len(np.unique(histories.trial)),
        len(histories.step),
        len(steps),
        float(np.median(steps)) if len(steps) else None,
        emergence_curve(histories.step, histories.came, histories.trial, once_per_trial=once_per_trial),
    )


def curves_by_group(
    histories: Histories, groups: Iterable[Group], *, once_per_trial: bool = False
) -> tuple[OnsetCurve, ...]:
    """A curve for each group that has trainings."""
    parts = ((group.label, histories.of(group.trials)) for group in groups)
    return tuple(onset_curve(label, part, once_per_trial=once_per_trial) for label, part in parts if len(part.step))


def outcome_histories(connection: duckdb.DuckDBPyConnection, outcome: str) -> Histories:
    """When the outcome with which each training ended began to hold; failed trainings are left out.

    A training that ended otherwise is censored at its last step, since it might have come later; unless it had ended
    for good, by being solved, diverging or converging: that never comes, and stays among those without it to the last
    step of all. So the curve is the share that comes (the cumulative incidence), and where no budget is shorter than
    another its end is the outcome's rate. A Kaplan-Meier estimate that censored those would say what would be if
    nothing else could happen.
    """
    rows = connection.execute(_HISTORIES, {"outcome": outcome}).fetchnumpy()
    came, step = np.asarray(rows["came"], np.bool_), np.asarray(rows["step"], np.int64)
    never = ~came & np.asarray(rows["ended"], np.bool_)
    last = int(np.asarray(rows["budget"], np.int64).max(initial=0))
    return Histories(np.asarray(rows["trial"], np.int64), np.where(never, max(last, step.max(initial=0)), step), came)
