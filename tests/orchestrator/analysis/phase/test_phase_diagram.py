"""Phase diagrams: the model, its border, and the cases it refuses with a note."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from numpy.typing import NDArray

from attnsweep import plot_phase
from attnsweep.orchestrator.analysis.phase.diagram import PhaseDiagram, fit_phase_diagram
from attnsweep.orchestrator.analysis.phase.surface import PlaneAxis, ResidualBin, TrialCounts, binned_residuals
from attnsweep.search_spaces.surface import Floats
from tests.present import present

X, Y = PlaneAxis("init_sigma", True, 1e-4, 1.0), PlaneAxis("learning_rate", False, 0.0, 2.0)


def _diagram(
    k_of: Callable[[Floats, Floats, np.random.Generator], NDArray[Any]], n_trials: int = 60, seed: int = 0
) -> PhaseDiagram:
    rng = np.random.default_rng(seed)
    x, y = 10 ** rng.uniform(-4, 0, n_trials), rng.uniform(0, 2, n_trials)
    n = np.full(n_trials, 8.0)
    return fit_phase_diagram(X, Y, TrialCounts(x, y, n, np.asarray(k_of(x, y, rng), float)), n)


def _smooth(x: Floats, y: Floats, rng: np.random.Generator) -> NDArray[Any]:
    return rng.binomial(8, 1 / (1 + np.exp(2 * np.log10(x) + 4 * y)))


def test_the_border_is_where_half_are_stuck_and_its_band_holds_it() -> None:
    diagram = _diagram(_smooth, 200)
    (line,) = diagram.contour()
    assert np.median(np.abs(np.log10(line[:, 0]) + 2 * line[:, 1])) < 0.4
    probability, low, high = diagram.at(line[:, 0], line[:, 1])
    assert probability == pytest.approx(0.5, abs=0.01)
    assert ((low < 0.5) & (high > 0.5)).all()


def _stripes(width: float) -> Callable[[Floats, Floats, np.random.Generator], NDArray[Any]]:
    return lambda _, y, rng: rng.binomial(8, np.where(np.floor(y / width) % 2, 0.9, 0.1))


def _crowded(n_trials: int = 400) -> PhaseDiagram:
    """Nearly all trials within a hundredth of the range, where they end in stripes: no knots are there."""
    rng = np.random.default_rng(0)
    x, y = 10 ** rng.uniform(-4, 0, n_trials), rng.uniform(0.99, 1.01, n_trials)
    y[:8] = np.linspace(0, 2, 8)
    n = np.full(n_trials, 8.0)
    return fit_phase_diagram(X, Y, TrialCounts(x, y, n, _stripes(0.005)(x, y, rng).astype(float)), n)


def test_the_surface_bends_as_much_as_held_out_trials_ask_for() -> None:
    smooth, stripes = _diagram(_smooth, 400), _diagram(_stripes(0.5), 400)
    assert present(smooth.surface).logit.n_effective < 15 < 25 < present(stripes.surface).logit.n_effective
    assert len(smooth.contour()) == 1
    assert len(stripes.contour()) >= 3
    assert max(abs(each.z or 0) for each in stripes.residuals()) < 4
    assert sum(each.n for each in smooth.residuals()) == 3200
    assert sum(each.expected for each in smooth.residuals()) == pytest.approx(smooth.trials.k.sum(), rel=0.02)
    assert present(smooth.surface).dispersion == pytest.approx(1, abs=0.2)


def test_a_surface_that_does_not_fit_says_so_first_and_has_no_border() -> None:
    diagram = _crowded()
    surface = present(diagram.surface)
    assert not surface.fits
    off = [each for each in diagram.residuals() if each.is_off]
    assert f"({len(off)} of {len(diagram.residuals())} cells" in diagram.note
    assert diagram.contour() == []
    assert len(off) > 4


def test_shares_are_off_by_what_chance_does_not_explain() -> None:
    """The same difference between shares, in few trials and in many: 5 of 8 where 4 are expected."""
    found: list[ResidualBin] = []
    for n_trials in (4, 4000):
        same, n = np.ones(n_trials), np.full(n_trials, 8.0)
        found += binned_residuals(TrialCounts(same, same, n, 5 * same), 0.5 * same, n)
    few, many = found
    assert (few.off, few.is_off) == (0.0, False)
    # 2.58 standard deviations of the mean of 32,000 independent trainings are exceeded once in a hundred times.
    assert many.off == pytest.approx(0.125 - 2.58 * np.sqrt(0.25 / 32_000), abs=1e-4)
    assert many.is_off


def test_separated_trials_have_a_band_that_holds_the_border() -> None:
    """No trial disagrees with some line: how steep the border is, nobody knows."""
    diagram = _diagram(lambda x, y, _: 8 * (np.log10(x) + 2 * y < 0), seed=1)
    along = np.linspace(0.05, 1.95, 20)
    _, low, high = diagram.at(10 ** (-2 * along), along)
    assert ((low < 0.5) & (high > 0.5)).mean() > 0.8
    _probability, low, high = diagram.at(np.array([1e-4, 1.0]), np.array([0.1, 1.9]))
    assert low[0] > 0.9 > 0.1 > high[1]
    assert len(diagram.contour()) == 1
    [panel] = plot_phase(diagram).axes[:1]
    assert np.asarray(panel.get_lines()[0].get_xydata()) == pytest.approx(diagram.contour()[0])


@pytest.mark.parametrize(("k", "which"), [(0, "none"), (8, "all")])
def test_a_constant_outcome_has_no_surface_and_says_so(k: int, which: str) -> None:
    diagram = _diagram(lambda *_: np.full(60, k))
    assert diagram.note.startswith(f"{which} of 480 trainings")
    assert (diagram.surface, diagram.residuals(), diagram.contour()) == (None, (), [])
    with pytest.raises(ValueError, match="no border to fit"):
        diagram.at(0.1, 1.0)
    (points,) = [each for each in plot_phase(diagram).axes[0].collections if isinstance(each, PathCollection)]
    assert np.asarray(points.get_array()) == pytest.approx(np.full(60, k / 8))
