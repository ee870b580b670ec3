"""The surface of a phase diagram: the probability of an ending at any point of the plane, its fit and its residuals.

The logit of the probability to end stuck (or with another ending) is a polynomial of the two parameters, each scaled to
-1..1, by its logarithm where the space is logarithmic. It is linear; the product is added from 20 trials on, the
squares from 30 on where each parameter has three values (5 trials per term). The trainings of one trial are not
independent, so the covariance is that of `clustered_covariance`. Bands use Student's t with T - terms degrees of
freedom. They are pointwise: the delta method on the linear predictor, where it is exact. A trial counts as many
trainings as it has; under `Sequential` replication, where that number depends on how they ended, all trials count the
same.

If a plane of the model separates trials with such trainings from trials without, the likelihood has no maximum. A
linear program detects this. A ridge penalty then gives a surface, for which no band is claimed.

In simulation (intra-trial correlation 0 and 0.4, 8 trainings a trial, borders of 1.5 to 12 logits a decade over four
decades) the band covers a truth between 0.1 and 0.9 in 94 to 98% of cases with 128 and 512 trials, and in 97 to 99.5%
with 32, where it is wide. Where the truth is within 0.001 of 0 or 1, it covers in 83 to 98%. The tests repeat a part.

Source: Albert & Anderson 1984, Konis 2007 (separation); Gelman et al. 2000 (binned residuals).
Axes: T trial, G grid.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from contourpy import contour_generator
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.logistic import clustered_covariance, fit_logistic
from attnsweep.orchestrator.analysis.rates.ending import STUCK, Ending

Floats = NDArray[np.float64]

TERMS = ("1", "x", "y", "x y", "x^2", "y^2")
_GRID = 61
_RESIDUAL_BINS = 4
"""The number of cells of residuals along each axis."""
_TRIALS_PER_TERM = 5
_FEW_TRIALS = 1000
_RIDGE = 0.1
"""The ridge penalty of squared coefficients, in trials' worth of log-likelihood; used if the likelihood has no
maximum."""


@dataclass(frozen=True, slots=True)
class PlaneAxis:
    """One of the two parameters; `low` and `high` are the least and the largest value that was tried."""

    name: str
    log: bool
    low: float
    high: float

    def scaled(self, values: Floats) -> Floats:
        """Values scaled so that the range tried is -1 to 1."""
        if self.log:
            # A value of 0, which such an axis does not have, is infinitely far.
            with np.errstate(divide="ignore"):
                return np.asarray(2 * np.log(values / self.low) / np.log(self.high / self.low) - 1)
        return np.asarray(2 * (values - self.low) / (self.high - self.low) - 1)

    def values(self, scaled: Floats) -> Floats:
        """The inverse of `scaled`."""
        share = (np.asarray(scaled) + 1) / 2
        if self.log:
            return np.asarray(self.low * (self.high / self.low) ** share)
        return np.asarray(self.low + (self.high - self.low) * share)


@dataclass(frozen=True, eq=False, slots=True)
class TrialCounts:
    """The observed counts of T trials.

    Attributes:
        x, y: (T,) the values of the two parameters.
        n: (T,) trainings counted.
        k: (T,) those of them that have the ending.
    """

    x: Floats
    y: Floats
    n: Floats
    k: Floats


@dataclass(frozen=True, eq=False, slots=True)
class Surface:
    """The fitted model.

    Attributes:
        x, y: The parameters.
        terms: The terms of the polynomial, in the order of the coefficients.
        coefficients: Coefficients for parameters scaled to -1..1.
        covariance: Their covariance; `None` if the likelihood has no maximum.
        quantile: Student's t for 95%.
        dispersion: Pearson's chi squared over its degrees of freedom. It is near 1 if the trainings of a trial are
            independent and the model fits; more means overdispersion or misfit.
    """

    x: PlaneAxis
    y: PlaneAxis
    terms: tuple[str, ...]
    coefficients: Floats
    covariance: Floats | None
    quantile: float
    dispersion: float

    def at(self, x: float | Floats, y: float | Floats) -> tuple[Floats, Floats, Floats]:
        """The probability with the bounds of its pointwise 95% band; bounds are NaN where no band is claimed."""
        design = design_matrix(*np.broadcast_arrays(self.x.scaled(np.asarray(x)), self.y.scaled(np.asarray(y))))
        design = design[..., : len(self.terms)]
        with np.errstate(invalid="ignore"):
            return self._at(design)

    def _at(self, design: Floats) -> tuple[Floats, Floats, Floats]:
        predictor = design @ self.coefficients
        if self.covariance is None:
            spread = np.full(predictor.shape, np.nan)
        else:
            variance = np.einsum("...i,ij,...j->...", design, self.covariance, design)
            spread = self.quantile * np.sqrt(variance)
        return expit(predictor), expit(predictor - spread), expit(predictor + spread)

    def grid(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """x (G,), y (G,), then the probability and the bounds of its band (G, G), rows by y."""
        axis = np.linspace(-1, 1, _GRID)
        x, y = self.x.values(axis), self.y.values(axis)
        return x, y, *self.at(x[None, :], y[:, None])

    def contour(self) -> list[Floats]:
        """The lines of probability 1/2, each (n, 2): x and y; only within the range tried."""
        axis = np.linspace(-1, 1, _GRID)
        _, _, probability, _, _ = self.grid()
        lines = contour_generator(axis, axis, probability).lines(0.5)
        return [
            np.column_stack([self.x.values(line[:, 0]), self.y.values(line[:, 1])]) for line in map(np.array, lines)
        ]


def design_matrix(x: Floats, y: Floats) -> Floats:
    """(..., 6) the terms in the order of `TERMS`, at scaled places."""
    return np.stack([np.ones_like(x), x, y, x * y, x**2, y**2], axis=-1)


def expit(predictor: Floats) -> Floats:
    """The probability of a logit."""
    from scipy import special

    return np.asarray(special.expit(predictor))


@dataclass(frozen=True, slots=True)
class ResidualBin:
    """Observed and expected trainings with the ending in one cell of the plane.

    Attributes:
        x_low, x_high, y_low, y_high: The ends of the cell.
        n_trials, n: Trials and trainings in the cell.
        k: Trainings with the ending.
        expected: The number of them that the model expects.
        z: (k - expected) over its standard deviation; `None` for one trial. The standard deviation is the larger of
            two: that of independent trainings, and that from the spread between trials, which alone would be far too
            small if few such trainings are expected.
    """

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    n_trials: int
    n: int
    k: int
    expected: float
    z: float | None


def pearson_residuals(trials: TrialCounts, probability: Floats) -> Floats:
    """(T,) (k - n p) / sqrt(n p (1 - p)) of each trial."""
    expected = trials.n * probability
    return np.asarray((trials.k - expected) / np.sqrt(np.maximum(expected * (1 - probability), 1e-12)))


def binned_residuals(surface: Surface, trials: TrialCounts) -> tuple[ResidualBin, ...]:
    """Observed against expected in up to 4 x 4 cells of about equally many trials."""
    probability, _, _ = surface.at(trials.x, trials.y)
    found = []
    for x_low, x_high, in_column in _cells(trials.x):
        for y_low, y_high, in_row in _cells(trials.y[in_column]):
            inside = np.flatnonzero(in_column)[in_row]
            n, k, p = trials.n[inside], trials.k[inside], probability[inside]
            expected, off = n * p, k - n * p
            spread = float(np.sqrt(max(np.square(off).sum(), (expected * (1 - p)).sum())))
            z = float(off.sum() / spread) if len(inside) > 1 and spread > 0 else None
            ends = (x_low, x_high, y_low, y_high)
            found.append(ResidualBin(*ends, len(inside), int(n.sum()), int(k.sum()), float(expected.sum()), z))
    return tuple(found)


def _cells(values: Floats) -> Sequence[tuple[float, float, NDArray[np.bool_]]]:
    """Up to 4 ranges of about equally many values; the last holds its upper end."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _RESIDUAL_BINS + 1)))
    if len(edges) == 1:
        return [(float(edges[0]), float(edges[0]), np.ones(len(values), bool))]
    place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    ranges = ((edges[at], edges[at + 1], place == at) for at in range(len(edges) - 1))
    return [(float(low), float(high), inside) for low, high, inside in ranges if inside.any()]


def fit_surface(
    x: PlaneAxis, y: PlaneAxis, trials: TrialCounts, weight: Floats, ending: Ending = STUCK
) -> tuple[Surface | None, str]:
    """Fits the model.

    Args:
        trials: Each with at least one training.
        weight: (T,) the weight of each trial in the fit, in trainings.

    Returns:
        The surface, `None` if there is nothing to fit; and a note that says what was fitted, or why nothing was.
    """
    n_trials, total, n_with = len(trials.n), int(trials.n.sum()), int(trials.k.sum())
    counted = f"{total:,} trainings of {n_trials:,} trials"
    if n_with in (0, total):
        which = "none" if n_with == 0 else "all"
        return None, f"{which} of {counted} {ending.verb}: there is no boundary to fit"
    if x.low == x.high or y.low == y.high:
        same = x.name if x.low == x.high else y.name
        return None, f"{same} is the same in {counted}: there is no plane to fit"
    design = design_matrix(x.scaled(trials.x), y.scaled(trials.y))
    n_terms = _supported_terms(design)
    if n_terms == 0:
        return None, f"too few for a model ({counted} in too few places of the plane)"
    design = design[:, :n_terms]
    note = f"{counted}; logit P({ending.label}) of {', '.join(TERMS[:n_terms])}"
    if _is_separated(design, trials):
        surface, why = None, f"{ending.label} and other trials are separated"
    else:
        surface, why = _maximum_likelihood((x, y), design, trials, weight), "maximum likelihood does not converge"
    if surface is None:
        surface = _ridge((x, y), design, trials, weight)
        note += f"; {why}: a ridge instead of maximum likelihood, and no band"
    return surface, note


def _maximum_likelihood(
    axes: tuple[PlaneAxis, PlaneAxis], design: Floats, trials: TrialCounts, weight: Floats
) -> Surface | None:
    """The surface of maximum likelihood; `None` if the iteration diverges."""
    from scipy import special

    # Each trial is one row, whose score is the sum of its trainings' scores, so each row is a cluster.
    share, (n_trials, n_terms) = trials.k / trials.n, design.shape
    fitted = fit_logistic(design, weight, share * weight)
    if not fitted.has_converged:
        return None
    covariance = clustered_covariance(fitted, design, weight, share * weight)
    quantile = float(special.stdtrit(n_trials - n_terms, 0.975))
    dispersion = float(np.square(pearson_residuals(trials, fitted.probability)).sum() / (n_trials - n_terms))
    return Surface(*axes, TERMS[:n_terms], fitted.coefficients, covariance, quantile, dispersion)


def _ridge(axes: tuple[PlaneAxis, PlaneAxis], design: Floats, trials: TrialCounts, weight: Floats) -> Surface:
    """The penalized surface for a likelihood without a maximum; it has no covariance."""
    import statsmodels.genmod.families as families
    from statsmodels.genmod.generalized_linear_model import GLM

    model = GLM(trials.k / trials.n, design, family=families.Binomial(), freq_weights=weight)
    n_trials, n_terms = design.shape
    penalty = np.full(n_terms, _RIDGE / n_trials)
    penalty[0] = 0.0
    coefficients = np.asarray(model.fit_regularized(alpha=penalty, L1_wt=0.0).params)
    residuals = pearson_residuals(trials, expit(design @ coefficients))
    dispersion = float(np.square(residuals).sum() / max(n_trials - n_terms, 1))
    return Surface(*axes, TERMS[:n_terms], coefficients, None, float("nan"), dispersion)


def _supported_terms(design: Floats) -> int:
    """The number of terms of the largest of the three models that the trials' places can determine; 0 if none."""
    for n_terms in (6, 4, 3):
        enough = len(design) >= _TRIALS_PER_TERM * n_terms or (n_terms == 3 and len(design) > n_terms)
        if enough and np.linalg.matrix_rank(design[:, :n_terms]) == n_terms:
            return n_terms
    return 0


def _is_separated(design: Floats, trials: TrialCounts) -> bool:
    """Whether the likelihood grows without bound in some direction of the coefficients.

    If some of the trials allow no such direction, all do not; and where trials are many, a few of them usually do.
    """
    few = np.linspace(0, len(design) - 1, min(len(design), _FEW_TRIALS)).astype(np.int64)
    if len(few) < len(design) and np.linalg.matrix_rank(design[few]) == design.shape[1]:
        some = TrialCounts(*(getattr(trials, name)[few] for name in ("x", "y", "n", "k")))
        if not _has_direction(design[few], some):
            return False
    return _has_direction(design, trials)


def _has_direction(design: Floats, trials: TrialCounts) -> bool:
    """Konis's linear program."""
    from scipy import optimize

    mixed = (trials.k > 0) & (trials.k < trials.n)
    signed = np.where(trials.k > 0, 1.0, -1.0)[~mixed, None] * design[~mixed]
    if not len(signed):
        return False
    found = optimize.linprog(
        -signed.sum(axis=0),
        A_ub=-signed,
        b_ub=np.zeros(len(signed)),
        A_eq=design[mixed] if mixed.any() else None,
        b_eq=np.zeros(int(mixed.sum())) if mixed.any() else None,
        bounds=(-1, 1),
    )
    return bool(found.success and signed.sum(axis=0) @ found.x > 1e-6)
