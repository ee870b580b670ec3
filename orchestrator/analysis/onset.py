"""When trainings reach an outcome, a role or an event ("the goal"): the share that has, by step. Axes: R training."""

import itertools
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.answer import DrawnAnswer, table
from attnsweep.orchestrator.analysis.onset_times import CurvePoint, HalfReached, OnsetTimes
from attnsweep.orchestrator.analysis.rates.bins import Crossing, by_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, slots=True)
class Factor:
    name: str
    labels: tuple[str, ...]
    place: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OnsetCurve:
    """The share of the trainings of one group that have reached the goal (an outcome, role or event), by step.

    Attributes:
        n_came, median_before, median_step: As in `OnsetTimes`.
    """

    label: str
    labels: tuple[str, ...]
    n_trials: int
    n_trainings: int
    n_came: int
    median_before: int | None
    median_step: int | None
    half: HalfReached
    curve: tuple[CurvePoint, ...]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Onset(DrawnAnswer):
    """When trainings reach the goal `what`, for each group of trials.

    Attributes:
        by: The parameter whose bins are the groups, or two with a comma between them; empty for one group of all
            trials.
    """

    what: str
    by: str
    curves: tuple[OnsetCurve, ...]
    note: str

    def _in_words(self) -> str:
        n, came = (sum(getattr(curve, name) for curve in self.curves) for name in ("n_trainings", "n_came"))
        by, note = self.by and f" by {self.by}", self.note and f"; {self.note}"
        return f"{self.what}{by}: reached by {came:,} of {n:,} trainings{note}"

    def medians(self) -> pa.Table:
        """One row per group: trainings, how many reached the goal, and where half had (`HalfReached`)."""
        numbers = ("n_trials", "n_trainings", "n_came", "half_before", "half_step", "low", "high")
        rows = [
            (curve.label, curve.n_trials, curve.n_trainings, curve.n_came, *astuple(curve.half))
            for curve in self.curves
        ]
        return table({"group": str} | dict.fromkeys(numbers, int), rows)

    def _shown(self) -> pa.Table:
        return self.medians()

    def to_arrow(self) -> pa.Table:
        """One row per group and step: the `share` at the goal, with its pointwise 95% interval `low` to `high`."""
        crossed = self.by.split(",") if "," in self.by else []
        columns: dict[str, type] = {"group": str, **{f"param_{name}": str for name in crossed}}
        columns |= {"step": int, "share": float, "most": float, "low": float, "high": float}
        rows = [
            (curve.label, *(curve.labels if crossed else ()), *astuple(point))
            for curve in self.curves
            for point in curve.curve
        ]
        return table(columns, rows)

    def plot(self) -> "Figure":
        """The share by step, one line per group with a pointwise 95% band."""
        return onset_figure(self.what.replace("_", " "), self.curves, by_label(self.by))


def onset_figure(title: str, curves: Sequence[OnsetCurve], legend: str = "") -> "Figure":
    """One line per curve with its pointwise 95% band, darker where it is unknown between two probes."""
    from attnsweep.orchestrator.analysis import figures

    with figures.house_style():
        figure, panel = figures.new_figure(1.3 * figures.WIDTH, figures.HEIGHT + 0.15 * len(curves))
        for number, curve in enumerate(curves):
            colour, dashes, _ = figures.group_style(number)
            steps, shares, most, low, high = np.reshape([astuple(point) for point in curve.curve], (-1, 5)).T
            panel.fill_between(steps, low, high, step="post", color=colour, alpha=0.2, linewidth=0)
            panel.fill_between(steps, shares, most, step="post", color=colour, alpha=0.4, linewidth=0)
            label = f"{curve.label} ({curve.n_trainings:,} trainings, {curve.n_trials:,} trials)"
            panel.step(steps, shares, where="post", color=colour, linestyle=dashes, label=label)
        panel.set_xlabel("optimizer steps")
        panel.set_title(f"{figures.figure_text(title)}: 95% bands")
        figures.scale_shares(panel, "share that has reached it")
        if curves:
            figures.scale_steps(panel, sorted({point.step for curve in curves for point in curve.curve}))
            figures.legend_below(figure, {str(line.get_label()): line for line in panel.get_lines()}, legend or None, 1)
    return figure


def onset_by(
    what: str, times: OnsetTimes, crossing: Crossing, *, once_per_trial: bool = False, note: str = ""
) -> Onset:
    """The share of each group by step. `note` is a remark for readers of the curves."""
    return Onset(what, crossing.by, onset_curves(times, factors_of(times, crossing), once_per_trial), note)


def factors_of(times: OnsetTimes, crossing: Crossing) -> tuple[Factor, ...]:
    """One for each parameter by which trials are grouped."""
    factors = []
    for name, axis in zip(crossing.names, crossing.axes, strict=True):
        place = {trial: at for at, group in enumerate(axis) for trial in group.trials}
        bins = np.array([place[trial] for trial in times.trial.tolist()], np.int64)
        factors.append(Factor(name, tuple(group.label for group in axis), bins))
    return tuple(factors)


def onset_curves(times: OnsetTimes, factors: Sequence[Factor], once_per_trial: bool) -> tuple[OnsetCurve, ...]:
    """One curve for each group of trainings in the same bin of every factor."""
    curves = []
    for place in itertools.product(*(range(len(factor.labels)) for factor in factors)):
        inside = np.ones(len(times.step), np.bool_)
        for factor, at in zip(factors, place, strict=True):
            inside &= factor.place == at
        if inside.any():
            labels = tuple(factor.labels[at] for factor, at in zip(factors, place, strict=True))
            curves.append(_curve(labels, times.where(inside), once_per_trial))
    return tuple(curves)


def _curve(labels: tuple[str, ...], times: OnsetTimes, once_per_trial: bool) -> OnsetCurve:
    return OnsetCurve(
        " × ".join(labels) or "all",
        labels,
        len(np.unique(times.trial)),
        len(times.step),
        times.n_came,
        times.median_before,
        times.median_step,
        times.half(once_per_trial=once_per_trial),
        times.curve(once_per_trial=once_per_trial),
    )
