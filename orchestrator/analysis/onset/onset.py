"""The step from which trainings have an outcome or a role, and the share that has it by step. Axes: R training."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.labels import parameter_label
from attnsweep.orchestrator.analysis.onset.share_by_step import CurvePoint, share_by_step
from attnsweep.orchestrator.analysis.rates.grouping import Group
from attnsweep.orchestrator.ledger.sql import IS_JUDGED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OUTCOME_ONSETS = f"""
select trial, outcome = $outcome as came, diverged_step is not null or n_steps < param_n_steps or outcome = 'solved'
    as ended, case when came then onset_step else n_steps end as step, param_n_steps as budget
from trainings where {IS_JUDGED} order by trial, replicate
"""


@dataclass(frozen=True, eq=False, slots=True)
class OnsetTimes:
    """The step at which each training reached an outcome or a role, or at which it was censored.

    Attributes:
        trial: (R,) the training's trial.
        step: (R,) the step at which the training reached it, or was censored.
        came: (R,) whether it was reached; false means censored.
    """

    trial: NDArray[np.int64]
    step: NDArray[np.int64]
    came: NDArray[np.bool_]

    def of(self, trials: Iterable[int]) -> "OnsetTimes":
        """The times of some trials."""
        inside = np.isin(self.trial, list(trials))
        return OnsetTimes(self.trial[inside], self.step[inside], self.came[inside])

    @property
    def n_came(self) -> int:
        """The number of trainings that reached it."""
        return int(self.came.sum())

    @property
    def median_step(self) -> float | None:
        """The median step of those that reached it; `None` if none did."""
        return float(np.median(self.step[self.came])) if self.n_came else None

    def curve(self, *, once_per_trial: bool) -> tuple[CurvePoint, ...]:
        """The share that has reached it, by step."""
        return share_by_step(self.step, self.came, self.trial, once_per_trial=once_per_trial)


@dataclass(frozen=True, slots=True)
class OnsetCurve:
    """The share of a group's trainings that have reached the outcome or role, by step.

    Attributes:
        label: The group's label.
        n_trials, n_trainings: Their numbers in the group.
        n_came: Trainings of the group that reached it.
        median_step: The median step of those; `None` if there are none.
        curve: The Kaplan-Meier estimate, up to 64 points.
    """

    label: str
    n_trials: int
    n_trainings: int
    n_came: int
    median_step: float | None
    curve: tuple[CurvePoint, ...]


@dataclass(frozen=True, slots=True)
class Onset:
    """When trainings reach an outcome or a role.

    Attributes:
        what: The outcome or the role.
        by: The parameter whose bins are the groups; empty for one group of all trials.
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
        """One line per group with its pointwise 95% band."""
        from attnsweep.orchestrator.analysis.figures.axes import scale_shares, scale_steps
        from attnsweep.orchestrator.analysis.figures.panels import HEIGHT, WIDTH, new_figure
        from attnsweep.orchestrator.analysis.figures.style import group_style, house_style
        from attnsweep.orchestrator.analysis.figures.texts import figure_text, legend_below

        with house_style():
            figure, panel = new_figure(1.3 * WIDTH, HEIGHT + 0.15 * len(self.curves))
            for number, each in enumerate(self.curves):
                colour, dashes, _ = group_style(number)
                steps = [point.step for point in each.curve]
                low, high = [point.low for point in each.curve], [point.high for point in each.curve]
                panel.fill_between(steps, low, high, step="post", color=colour, alpha=0.2, linewidth=0)
                label = f"{each.label} ({each.n_trainings:,} trainings, {each.n_trials:,} trials)"
                shares = [point.share for point in each.curve]
                panel.step(steps, shares, where="post", color=colour, linestyle=dashes, label=label)
            panel.set_xlabel("optimizer steps")
            panel.set_title(f"{figure_text(self.what.replace('_', ' '))}: 95% bands")
            scale_shares(panel, "share that has reached it")
            if self.curves:
                scale_steps(panel, sorted({point.step for each in self.curves for point in each.curve}))
                title = parameter_label(self.by) if self.by else None
                legend_below(figure, {str(line.get_label()): line for line in panel.get_lines()}, title, 1)
        return figure


def onset_curves(times: OnsetTimes, groups: Sequence[Group], *, once_per_trial: bool = False) -> tuple[OnsetCurve, ...]:
    """A curve for each group that has trainings.

    Args:
        times: The times of all trainings.
        groups: The groups of trials.
        once_per_trial: Whether each trial counts once, whatever its number of trainings.
    """
    found = []
    for group in groups:
        inside = times.of(group.trials)
        if n_trainings := len(inside.step):
            n_trials, curve = len(np.unique(inside.trial)), inside.curve(once_per_trial=once_per_trial)
            found.append(OnsetCurve(group.label, n_trials, n_trainings, inside.n_came, inside.median_step, curve))
    return tuple(found)


def outcome_onsets(connection: duckdb.DuckDBPyConnection, outcome: str) -> OnsetTimes:
    """The step at which the outcome of each training began to hold; failed trainings are left out.

    A training with another outcome is censored at its last step, because it might have reached this outcome later. But
    a training that ended for good (solved, diverged or converged) never reaches it, so it counts as without the outcome
    up to the last step of all. The curve is therefore the cumulative incidence, and if all budgets are equal its end is
    the outcome's rate. Censoring these trainings too would instead estimate the share if no other outcome existed.
    """
    rows = connection.execute(_OUTCOME_ONSETS, {"outcome": outcome}).fetchnumpy()
    came, step = np.asarray(rows["came"], np.bool_), np.asarray(rows["step"], np.int64)
    never = ~came & np.asarray(rows["ended"], np.bool_)
    last = int(np.asarray(rows["budget"], np.int64).max(initial=0))
    step = np.where(never, max(last, step.max(initial=0)), step)
    return OnsetTimes(np.asarray(rows["trial"], np.int64), step, came)
