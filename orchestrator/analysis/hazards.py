"""How much sooner trainings reach an outcome or a role ("the goal") in one bin of a parameter than in another, as
hazard ratios.

The hazard is the chance that a training which has not reached the goal reaches it in the next short while. A ratio of 2
means that this chance is twice as large as in the reference bin, at every step. Probes show only the interval between
two probes in which a training reached the goal, and many trainings share an interval. So the model is a regression of
the chance per interval with the complementary log-log link, which has the ratios of a continuous proportional-hazards
(Cox) model and, unlike Cox's partial likelihood, no bias from ties. It has one term for each interval and one for each
bin of each factor except the reference bin: with two factors, the ratios of one are at equal values of the other
factor.

Trainings of one trial are not independent: the covariance is the sandwich with scores summed by trial, and the
intervals use Student's t. They are not adjusted for the number of bins.

In simulation (40 and 100 trials of 6 trainings, times dependent within trials, two factors) the intervals cover the
ratio of a very large sweep in 95% and 93% of cases; the tests repeat the simulation. The ratio of a very large sweep is
one over all trials: where trials differ much from each other, it is nearer to 1 than the ratio between trials that are
equal in everything else.

Source: Prentice & Gloeckler 1978, Biometrics 34 (grouped times); Lin & Wei 1989, JASA 84 (the sandwich). Axes: R
training, U trial in one combination of bins, J interval.
"""

import warnings
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.answer import DrawnAnswer, table
from attnsweep.orchestrator.analysis.labels import parameter_label
from attnsweep.orchestrator.analysis.onset_times import OnsetTimes
from attnsweep.orchestrator.analysis.rates.intervals import weights_of_trainings
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_INTERVALS = 16
"""If trainings reached the goal (an outcome or a role) in more intervals between probes than this, intervals are
merged, so that about equally many trainings reach the goal in each."""
_LARGEST = 12.0
"""A hazard ratio whose logarithm is beyond this is not reported. It arises if all trainings of the bin reached the goal
at the same step."""
_Estimate = tuple[float | None, float | None, float | None]
_NONE: _Estimate = (None, None, None)


@dataclass(frozen=True, eq=False, slots=True)
class Factor:
    """A division of trainings into groups, such as by the bins of a parameter. `labels` names the groups, and `place`
    has for each training the index of its group."""

    name: str
    labels: tuple[str, ...]
    place: Ints


@dataclass(frozen=True, slots=True)
class HazardRatio:
    """The hazard (the chance per step) of reaching the goal (an outcome or a role) in one bin of the parameter `name`,
    divided by the hazard in the reference bin.

    Attributes:
        label, reference: The labels of the bin and of the reference bin.
        n_came: The number of trainings in the bin that reached the goal.
        ratio: 1 for the reference, 0 if no training of the bin reached the goal, `None` if it cannot be estimated.
        low, high: The 95% interval of the ratio; `None` where there is none.
    """

    name: str
    label: str
    reference: str
    n_trainings: int
    n_came: int
    ratio: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, repr=False)
class HazardRatios(DrawnAnswer):
    """Compares how soon trainings reach a goal, between the bins of each parameter: the hazard (chance per step of
    reaching the goal) in each bin, divided by that in a reference bin.

    The goal `what` is an outcome or a role of attention heads.

    `note` says why some ratios could not be estimated; else it is empty.
    """

    what: str
    ratios: tuple[HazardRatio, ...]
    note: str

    def _in_words(self) -> str:
        names = ", ".join(dict.fromkeys(ratio.name for ratio in self.ratios))
        return f"{self.what} by {names}{self.note and f': {self.note}'}"

    def to_arrow(self) -> pa.Table:
        """Returns one row per bin of a parameter's values: `ratio` is the bin's hazard (chance per step of reaching the
        goal) divided by that of the bin `reference`, with the 95% interval `low` to `high`.
        """
        columns: dict[str, type] = {"name": str, "label": str, "reference": str, "n_trainings": int, "n_came": int}
        return table(columns | dict.fromkeys(("ratio", "low", "high"), float), map(astuple, self.ratios))

    def plot(self) -> "Figure":
        """Draws a hazard ratio for each bin (range of values) of a parameter, with its interval, on a logarithmic axis.
        Bins for which the ratio could not be estimated have no mark."""
        from attnsweep.orchestrator.analysis import figures

        with figures.house_style():
            figure, panel = figures.new_figure(1.5 * figures.WIDTH, 1.1 + 0.3 * len(self.ratios), grid="x")
            panel.axvline(1, color=figures.GREY, linewidth=0.8)
            panel.set_xscale("log")
            for row, ratio in enumerate(self.ratios):
                if ratio.label == ratio.reference:
                    panel.plot(1, row, marker="D", color=figures.GREY, markerfacecolor="white")
                elif ratio.ratio is not None and ratio.low is not None and ratio.high is not None:
                    figures.draw_interval(
                        panel, row, (ratio.ratio, ratio.low, ratio.high), "x", fmt="o", color=figures.BLUE
                    )
            names = [f"{parameter_label(ratio.name)} {figures.figure_text(ratio.label)}" for ratio in self.ratios]
            panel.set_yticks(range(len(names)), names)
            panel.set_ylim(len(names) - 0.5, -0.5)
            panel.set_xlabel("hazard ratio (95% interval)")
            panel.set_title(figures.figure_text(self.note or f"{self.what.replace('_', ' ')}: how much sooner", 60))
        return figure


def hazard_ratios(
    times: OnsetTimes, factors: Sequence[Factor], *, once_per_trial: bool = False
) -> tuple[tuple[HazardRatio, ...], str]:
    """Estimates hazard ratios: how soon the trainings of one group reach the goal (an outcome or a role), relative to
    those of a reference group. Each factor, such as a parameter, divides the trainings into groups.

    Also returns a note, which says why some ratios cannot be estimated. Raises a `UserError` if there is no factor.
    """
    if not factors:
        raise UserError(
            "by",
            given=None,
            expected="the name of a parameter, because hazards (rates of events per step) are compared between groups"
            " of its values",
            fix='add by="PARAMETER"',
        )
    came = [np.bincount(factor.place, times.came, len(factor.labels)).astype(int) for factor in factors]
    references = [int(n_came.argmax()) for n_came in came]
    estimates, note = _fit(times, factors, came, references, once_per_trial)
    ratios = []
    for at, factor in enumerate(factors):
        n = np.bincount(factor.place, minlength=len(factor.labels))
        reference = factor.labels[references[at]]
        for index, label in enumerate(factor.labels):
            numbers = (int(n[index]), int(came[at][index]))
            ratios.append(HazardRatio(factor.name, label, reference, *numbers, *estimates.get((at, index), _NONE)))
    return tuple(ratios), note


def ratio_label(ratio: HazardRatio) -> str:
    """Formats a hazard ratio: `1.8 [1.2, 2.7]`, `1 (reference)`, `0 (none reached it)`, or `-` without an estimate."""
    if ratio.ratio is None:
        return "-"
    if ratio.low is None or ratio.high is None:
        return "1 (reference)" if ratio.label == ratio.reference else "0 (none reached it)"
    return f"{ratio.ratio:.2g} [{ratio.low:.2g}, {ratio.high:.2g}]"


def _fit(
    times: OnsetTimes, factors: Sequence[Factor], came: Sequence[Ints], references: Sequence[int], once_per_trial: bool
) -> tuple[dict[tuple[int, int], _Estimate], str]:
    """Fits a model of how soon trainings reach the goal (an outcome or a role), given the groups into which each
    factor, such as a parameter, divides them. Returns each group's hazard ratio, by (index of the factor, index of the
    group), and a note on ratios that could not be estimated."""
    estimates: dict[tuple[int, int], _Estimate] = {}
    terms = []
    inside = np.ones(len(times.step), np.bool_)
    for at, factor in enumerate(factors):
        for index in range(len(factor.labels)):
            if came[at][index] == 0:
                # No training in this bin (range of values of a parameter) reached the goal, so the bin's estimated
                # hazard ratio is 0. Such a bin does not affect the ratios of the other bins, so the regression leaves
                # it out.
                estimates[at, index] = (0.0, None, None) if came[at].any() else _NONE
                inside &= factor.place != index
            elif index == references[at]:
                estimates[at, index] = (1.0, None, None)
            else:
                terms.append((at, index))
    if not times.came.any():
        return estimates, "no training reached it"
    if not terms:
        return estimates, "only one bin has trainings that reached it"
    fitted, note = _regression(times.where(inside), [factor.place[inside] for factor in factors], terms, once_per_trial)
    return estimates | dict(zip(terms, fitted, strict=True)), note


def _regression(
    times: OnsetTimes, places: Sequence[Ints], terms: Sequence[tuple[int, int]], once_per_trial: bool
) -> tuple[list[_Estimate], str]:
    """Estimates how much sooner or later trainings reach a goal (an outcome or a role) in one bin of a parameter than
    in another, as hazard ratios.

    The estimate is a regression. For each interval between two measurements, it predicts the share of trainings that
    reach the goal in this interval, among those that had not reached it before.

    Args:
        places: For each factor, the number of each training's bin.
        terms: The (number of the factor, number of the bin) of each ratio that is estimated.
    """
    import statsmodels.genmod.families as families
    from scipy import special
    from statsmodels.genmod.generalized_linear_model import GLM

    nothing: list[_Estimate] = [_NONE] * len(terms)
    keys, row_R = np.unique(np.column_stack([times.trial, *places]), axis=0, return_inverse=True)
    weight_R = weights_of_trainings(times.trial, once_per_trial=once_per_trial)
    at_risk_UJ, came_UJ = _counts(times, weight_R, row_R.ravel(), len(keys))
    row, interval = np.nonzero(at_risk_UJ)
    n_clusters = len(np.unique(keys[:, 0]))
    if not len(row) or n_clusters <= len(terms) + 1:
        return nothing, "too few trials, or all come at once"
    effects = np.column_stack([keys[row, 1 + at] == index for at, index in terms]).astype(np.float64)
    present, renumbered = np.unique(interval, return_inverse=True)
    design = np.column_stack([np.eye(len(present))[renumbered], effects])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return nothing, "the bins cannot be told apart"
    n, k = at_risk_UJ[row, interval], came_UJ[row, interval]
    model = GLM(np.column_stack([k, n - k]), design, family=families.Binomial(families.links.CLogLog()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fitted = model.fit(cov_type="cluster", cov_kwds={"groups": keys[row, 0]})
        except np.linalg.LinAlgError:
            return nothing, "the fit does not converge"
    if not fitted.converged:
        return nothing, "the fit does not converge"
    reach = float(special.stdtrit(n_clusters - len(terms), 0.975)) * np.asarray(fitted.bse)[-len(terms) :]
    logs = np.asarray(fitted.params)[-len(terms) :]
    fine = np.isfinite(reach) & (np.abs(logs) < _LARGEST)
    estimates = [
        (float(np.exp(log)), float(np.exp(log - half)), float(np.exp(log + half))) if good else _NONE
        for log, half, good in zip(logs, reach, fine, strict=True)
    ]
    return estimates, "" if fine.all() else "a bin whose trainings all come at once has no ratio"


def _counts(times: OnsetTimes, weight_R: Floats, row_R: Ints, n_rows: int) -> tuple[Floats, Floats]:
    """Counts, for each interval between measured steps, the trainings that had not reached the studied goal (an
    outcome, a role of attention heads or an event) before the interval, and those that reached it within the interval.

    Both counts are weighted and have the shape (rows, intervals). A row is a trial in one combination of bins.
    """
    steps = np.sort(times.step[times.came])
    last_J = np.unique(steps)
    if len(last_J) > _MOST_INTERVALS:
        last_J = np.unique(steps[np.linspace(0, len(steps) - 1, _MOST_INTERVALS + 1).astype(int)[1:]])
    # A training whose observation ends inside an interval (a censored one) does not count as at risk in this interval.
    interval_R = np.searchsorted(last_J, times.step, side="left")
    n_at_risk_R = np.where(times.came, interval_R + 1, np.searchsorted(last_J, times.step, side="right"))
    at_risk, came = (np.zeros((n_rows, len(last_J) + 1)) for _ in range(2))
    np.add.at(at_risk, (row_R, np.maximum(n_at_risk_R - 1, 0)), weight_R * (n_at_risk_R > 0))
    np.add.at(came, (row_R, np.minimum(interval_R, len(last_J))), weight_R * times.came)
    at_risk, came = at_risk[:, ::-1].cumsum(axis=1)[:, ::-1][:, :-1], came[:, :-1]
    # An interval in which all trainings at risk reach the goal says nothing about hazard ratios, so the interval is
    # dropped.
    told_J = came.sum(axis=0) < at_risk.sum(axis=0)
    return at_risk[:, told_J], came[:, told_J]
