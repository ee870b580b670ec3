"""Phase diagrams: the model, its boundary, and the cases it refuses with a note."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from scipy import stats

from attnsweep.orchestrator.analysis.phase.diagram import PhaseDiagram, fit_phase_diagram
from attnsweep.orchestrator.analysis.phase.surface import TERMS, Floats, PlaneAxis, TrialCounts
from tests.orchestrator.drawn import legend, lines, texts, unreadable
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


def test_it_is_the_regression_of_single_trainings() -> None:
    diagram = _diagram(_smooth)
    u, v = np.log10(diagram.trials.x) / 2 + 1, diagram.trials.y - 1
    design = np.column_stack([np.ones_like(u), u, v, u * v, u**2, v**2])
    stuck = np.concatenate([np.arange(8) < k for k in diagram.trials.k]).astype(float)
    fitted = sm.GLM(stuck, np.repeat(design, 8, axis=0), family=sm.families.Binomial()).fit()
    surface = present(diagram.surface)
    assert surface.terms == TERMS
    assert surface.coefficients == pytest.approx(fitted.params, rel=1e-6)
    assert surface.quantile == pytest.approx(float(stats.t.ppf(0.975, 60 - 6)))


def test_the_boundary_is_where_half_are_stuck_and_its_band_holds_it() -> None:
    diagram = _diagram(_smooth, 200)
    (line,) = diagram.contour()
    assert np.median(np.abs(np.log10(line[:, 0]) + 2 * line[:, 1])) < 0.4
    probability, low, high = diagram.at(line[:, 0], line[:, 1])
    assert probability == pytest.approx(0.5, abs=0.01)
    assert ((low < 0.5) & (high > 0.5)).all()
    assert diagram.to_arrow().column_names == ["init_sigma", "learning_rate", "probability", "low", "high"]


@pytest.mark.parametrize(("n_trials", "n_terms"), [(6, 3), (20, 4), (29, 4), (30, 6)])
def test_terms_are_those_that_the_trials_support(n_trials: int, n_terms: int) -> None:
    assert len(present(_diagram(_smooth, n_trials, seed=4).surface).terms) == n_terms


def test_two_values_of_a_parameter_have_no_square() -> None:
    diagram = _diagram(_smooth, 80)
    trials = TrialCounts(np.where(diagram.trials.x > 0.01, 1.0, 1e-4), *(getattr(diagram.trials, a) for a in "ynk"))
    assert present(fit_phase_diagram(X, Y, trials, trials.n).surface).terms == TERMS[:4]


def test_residuals_show_a_misfit_where_it_is() -> None:
    stripes = _diagram(lambda _, y, rng: rng.binomial(8, np.where(np.floor(2 * y) % 2, 0.9, 0.1)), 400)
    good, bad = _diagram(_smooth, 400), stripes
    assert max(abs(each.z or 0) for each in good.residuals()) < 3.5 < max(abs(each.z or 0) for each in bad.residuals())
    assert sum(each.n for each in good.residuals()) == 3200
    assert sum(each.expected for each in good.residuals()) == pytest.approx(good.trials.k.sum())
    assert present(good.surface).dispersion < 1.5 < present(bad.surface).dispersion
    assert len(good.pearson_residuals()) == 400


def test_separated_trials_have_a_surface_and_no_band() -> None:
    diagram = _diagram(lambda x, y, _: 8 * (np.log10(x) + 2 * y < 0))
    assert "separated: a ridge instead of maximum likelihood, and no band" in diagram.note
    assert present(diagram.surface).covariance is None
    probability, low, high = diagram.at(np.array([1e-4, 1.0]), np.array([0.1, 1.9]))
    assert probability[0] > 0.9 > 0.1 > probability[1]
    assert np.isnan([low, high]).all()
    assert diagram.to_arrow()["low"].null_count == diagram.to_arrow().num_rows
    assert len(diagram.contour()) == 1
    assert legend(diagram.plot()) == ["half end stuck", "trial"]


def test_one_mixed_trial_on_the_wrong_side_ends_the_separation() -> None:
    def ends(x: Floats, y: Floats, rng: np.random.Generator) -> NDArray[Any]:
        k = 8.0 * (np.log10(x) + 2 * y < 0)
        k[:12] = 4
        return k

    assert present(_diagram(ends).surface).covariance is not None


@pytest.mark.parametrize("odd", [None, 1])
def test_separation_is_found_among_many_trials(odd: int | None) -> None:
    """One trial decides, and a look at some of the trials misses it."""

    def ends(x: Floats, y: Floats, rng: np.random.Generator) -> NDArray[Any]:
        k = 8.0 * (np.log10(x) + 2 * y < 0)
        if odd is not None:
            k[odd] = 8.0 - k[odd]
        return k

    diagram = _diagram(ends, 3000)
    assert ("separated: a ridge" in diagram.note) == (odd is None)
    assert (present(diagram.surface).covariance is None) == (odd is None)


@pytest.mark.parametrize(("k", "which"), [(0, "none"), (8, "all")])
def test_a_constant_outcome_has_no_surface_and_says_so(k: int, which: str) -> None:
    diagram = _diagram(lambda *_: np.full(60, k))
    assert diagram.note == f"{which} of 480 trainings of 60 trials end stuck: there is no boundary to fit"
    assert (diagram.surface, diagram.residuals(), diagram.contour()) == (None, (), [])
    assert diagram.to_arrow().num_rows == 0
    with pytest.raises(ValueError, match="no boundary to fit"):
        diagram.at(0.1, 1.0)
    figure = diagram.plot()
    assert (figure.get_suptitle().replace("\n", " "), legend(figure)) == (diagram.note, ["trial"])
    (points,) = [each for each in figure.axes[0].collections if isinstance(each, PathCollection)]
    assert np.asarray(points.get_array()) == pytest.approx(np.full(60, k / 8))


@pytest.mark.parametrize("seed", [117, 136, 164])
def test_a_maximum_that_is_far_away_is_found(seed: int) -> None:
    """No plane separates these trials, but nearly: whole steps of Newton's method jump away from the maximum."""
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(-1, 1, (2, 30))
    n = np.full(30, 2.0)
    k = rng.binomial(2, 1 / (1 + np.exp(-8 * x - 3 * y))).astype(float)
    ends = PlaneAxis("x", False, x.min(), x.max()), PlaneAxis("y", False, y.min(), y.max())
    surface = present(fit_phase_diagram(*ends, TrialCounts(x, y, n, k), n).surface)
    probability, low, high = surface.at(x, y)
    assert (k - n * probability) @ np.column_stack([np.ones(30), x, y]) == pytest.approx(np.zeros(3), abs=1e-4)
    assert ((low <= probability) & (probability <= high)).all()


def test_too_few_trials_have_no_surface() -> None:
    diagram = fit_phase_diagram(X, Y, TrialCounts(*np.array([[0.1, 0.2], [1.0, 1.5], [8, 8], [3, 4.0]])), np.ones(2))
    assert diagram.note.startswith("too few for a model")


@pytest.mark.scale
@pytest.mark.slow
def test_the_figure_shows_surface_boundary_band_trials_and_residuals() -> None:
    diagram = _diagram(_smooth)
    figure = diagram.plot()
    surface, residuals = (panel for panel in figure.axes if panel.get_title())
    assert surface.get_xlabel() == residuals.get_xlabel() == "initialization $σ$"
    assert (surface.get_xscale(), surface.get_yscale()) == ("log", "linear")
    assert figure.get_suptitle() == diagram.note
    assert legend(figure) == ["half end stuck", "its 95% band", "trial"]
    assert diagram.surface is not None
    (mesh,) = [each for each in surface.collections if isinstance(each, QuadMesh)]
    assert np.asarray(mesh.get_array()) == pytest.approx(diagram.surface.grid()[2])
    assert lines(surface) == [each.tolist() for each in diagram.contour()]
    (points,) = [each for each in surface.collections if isinstance(each, PathCollection)]
    assert np.asarray(points.get_offsets()) == pytest.approx(np.column_stack([diagram.trials.x, diagram.trials.y]))
    assert np.asarray(points.get_array()) == pytest.approx(diagram.trials.k / 8)
    cells = diagram.residuals()
    drawn = [patch for patch in residuals.patches if isinstance(patch, Rectangle)]
    corners = [(*patch.get_xy(), patch.get_width()) for patch in drawn]
    assert corners == [pytest.approx((each.x_low, each.y_low, each.x_high - each.x_low)) for each in cells]
    written = {f"{each.k / each.n:.2f}\n({each.expected / each.n:.2f})" for each in cells}
    assert set(texts(residuals)) <= written
    assert len(texts(residuals)) > 8
    assert unreadable(figure) == []


def test_many_trials_are_drawn_as_the_cells_of_the_residuals() -> None:
    diagram = _diagram(_smooth, 401)
    figure = diagram.plot()
    assert legend(figure)[-1] == "trials around"
    (points,) = [each for each in figure.axes[0].collections if isinstance(each, PathCollection)]
    assert np.asarray(points.get_array()) == pytest.approx([each.k / each.n for each in diagram.residuals()])


@pytest.mark.parametrize(("low", "high"), [(2e-3, 4e-3), (1e-3, 5e-2), (0.05, 2.0), (1e-4, 3.0), (1e-9, 1.0)])
def test_the_labels_of_a_logarithmic_axis_do_not_touch(low: float, high: float) -> None:
    axis = PlaneAxis("learning_rate", True, low, high)
    x = np.geomspace(low, high, 60)
    trials = TrialCounts(x, np.resize([0.0, 1.0, 2.0], 60), np.full(60, 8.0), np.resize([1.0, 5.0, 4.0, 7.0], 60))
    figure = fit_phase_diagram(axis, Y, trials, trials.n).plot()
    figure.canvas.draw()
    panel = figure.axes[0]
    labels = [*panel.get_xticklabels(), *panel.get_xticklabels(minor=True)]
    boxes = [each.get_window_extent() for each in labels if each.get_text() and low <= each.get_position()[0] <= high]
    assert len(boxes) >= 2
    assert all(not one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
