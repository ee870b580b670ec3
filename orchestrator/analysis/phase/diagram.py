"""A phase diagram: the probability of an ending as a function of two parameters. Axes: T trial."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np

from attnsweep.orchestrator.analysis.phase.surface import (
    PlaneAxis,
    ResidualBin,
    Surface,
    TrialCounts,
    binned_residuals,
)
from attnsweep.orchestrator.analysis.rates.bins import is_logarithmic, values_of
from attnsweep.orchestrator.analysis.rates.by_parameter import STUCK, Ending, counts_by_trial
from attnsweep.orchestrator.analysis.rates.intervals import trials_count_once
from attnsweep.search_spaces.surface import Floats, fit_logit
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError

_MIN_TRIALS = 4


@dataclass(frozen=True, eq=False, slots=True)
class PhaseDiagram:
    """`surface`: `None` if there is nothing to fit; `note`: what was fitted, or why nothing was."""

    x: PlaneAxis
    y: PlaneAxis
    trials: TrialCounts
    surface: Surface | None
    note: str
    ending: Ending = STUCK

    def __repr__(self) -> str:
        return f"PhaseDiagram({self.ending.share_label} over {self.x.name}, {self.y.name}: {self.note})"

    def at(self, x: float | Floats, y: float | Floats) -> tuple[Floats, Floats, Floats]:
        """The probability with its pointwise 95% band; NaN outside of the range tried. Raises a `ValueError` if nothing
        was fitted."""
        if self.surface is None:
            raise ValueError(f"no model was fitted: {self.note}")
        return self.surface.at(x, y)

    def contour(self) -> list[Floats]:
        """The lines on which the probability is 1/2."""
        return [] if self.surface is None else self.surface.contour()

    def residuals(self) -> tuple[ResidualBin, ...]:
        """Observed and predicted numbers by cell; empty if nothing was fitted."""
        return () if self.surface is None else self.surface.residuals


def read_phase_diagram(
    connection: duckdb.DuckDBPyConnection, specs: Sequence[Sweep], x: str, y: str, ending: Ending = STUCK
) -> PhaseDiagram:
    for name, values in values_of(connection, (x, y)).items():
        odd = next((value for value in values.values() if isinstance(value, bool | str)), None)
        if odd is not None:
            fix = "use outcomes(by=[...]) for a table by a parameter that is not a number"
            raise UserError(name, given=odd, expected="a parameter whose values are numbers", fix=fix)
    rows = [(n, k, *point) for _, n, k, *point in counts_by_trial(connection, (x, y), ending) if n]
    kept = np.array([row for row in rows if None not in row], dtype=np.float64)
    if not len(kept):
        expected = "judged trainings with numbers for both parameters"
        fix = "name parameters that have values in this sweep"
        raise UserError(f"{x}, {y}", given="no such training", expected=expected, fix=fix)
    n_T, k_T, x_T, y_T = kept.T
    trials = TrialCounts(x_T, y_T, n_T, k_T)
    weight = np.full(len(n_T), n_T.mean()) if trials_count_once(*specs) else n_T
    diagram = fit_phase_diagram(_axis(specs, x, trials.x), _axis(specs, y, trials.y), trials, weight, ending)
    if len(kept) == len(rows):
        return diagram
    left_out = f"{len(rows) - len(kept):,} trials without a value are left out"
    return dataclasses.replace(diagram, note=f"{diagram.note}; {left_out}")


def fit_phase_diagram(
    x: PlaneAxis, y: PlaneAxis, trials: TrialCounts, weight: Floats, ending: Ending = STUCK
) -> PhaseDiagram:
    """`weight`: (T,) of each trial in the fit."""
    return PhaseDiagram(x, y, trials, *_fitted(x, y, trials, weight, ending), ending)


def _fitted(
    x: PlaneAxis, y: PlaneAxis, trials: TrialCounts, weight: Floats, ending: Ending
) -> tuple[Surface | None, str]:
    from scipy import special

    n_trials, total, n_with = len(trials.n), int(trials.n.sum()), int(trials.k.sum())
    counted = f"{total:,} trainings of {n_trials:,} trials"
    if n_with in (0, total):
        which = "none" if n_with == 0 else "all"
        return None, f"{which} of {counted} {ending.verb}: there is no border to fit"
    if x.low == x.high or y.low == y.high:
        same = x.name if x.low == x.high else y.name
        return None, f"{same} is the same in {counted}: there is no plane to fit"
    points_T2 = np.column_stack([x.scaled(trials.x), y.scaled(trials.y)])
    if n_trials < _MIN_TRIALS or np.linalg.matrix_rank(np.column_stack([np.ones(n_trials), points_T2])) < 3:
        return None, f"{counted} are in too few places of the plane"
    logit = fit_logit(points_T2, trials.n, trials.k, weight)
    quantile = float(special.stdtrit(max(n_trials - logit.n_effective, 1.0), 0.975))
    surface = Surface(x, y, logit, quantile, binned_residuals(trials, logit.held_out_T, weight))
    terms = f"{logit.n_effective:.0f} effective terms, chosen by held-out trials"
    note = f"{counted}; logit P({ending.label}) by {terms}"
    if not surface.fits:
        worst = max(surface.residuals, key=lambda cell: cell.off)
        n_off = sum(cell.is_off for cell in surface.residuals)
        shares = f"{worst.k / worst.n:.2f} observed, {worst.expected / worst.n:.2f} expected"
        cells = f"{n_off} of {len(surface.residuals)} cells of the residuals, at worst {shares}"
        note = f"the surface does not fit, so no border is drawn from it ({cells}); {note}"
    return surface, note


def _axis(specs: Sequence[Sweep], name: str, values: Floats) -> PlaneAxis:
    return PlaneAxis(name, is_logarithmic(specs, name, values.tolist()), float(values.min()), float(values.max()))
