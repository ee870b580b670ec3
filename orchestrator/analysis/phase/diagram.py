"""Where in the plane of two parameters trainings are stuck: a logistic regression with its uncertainty. Axes: T trial.

logit P(stuck) is a polynomial of the two parameters, each scaled to -1..1 (its logarithm where the space is
logarithmic): linear; with their product from 20 trials on; with squares from 30 on, where there are three values of
each (5 trials a term). The trainings of one trial are not independent, so the covariance is the sandwich with scores
summed by trial and the factor T / (T - terms); bands take Student's t with T - terms degrees of freedom and are
pointwise: the delta method on the linear predictor, where it is exact. A trial counts as many trainings as it has;
under `Sequential` replication, where these were decided by how they ended, all trials count the same.

Where a plane of the model separates trials with stuck trainings from trials without, the likelihood has no maximum. A
linear program finds that out; then a ridge gives a surface, and no band is claimed.

Source: Liang & Zeger 1986 (sandwich by clusters); Albert & Anderson 1984, Konis 2007 (separation); Gelman et al. 2000
(binned residuals). In simulation (30 to 120 trials x 8, intra-trial correlation 0.4) the band covers the truth in 92 to
96% of cases; the tests repeat it.
"""

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.grouping import is_logarithmic, values_of
from attnsweep.orchestrator.analysis.rates import trials_count_once
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

TERMS = ("1", "x", "y", "x y", "x^2", "y^2")
_TRIALS_PER_TERM = 5
_GRID = 61
_RIDGE = 0.1
"""Penalty of squared coefficients, in trials' worth of log-likelihood, where there is no maximum without one."""
_RESIDUAL_BINS = 4
"""Along each axis."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One of the two parameters; `low` and `high` are the least and largest value that was tried."""

    name: str
    log: bool
    low: float
    high: float

    def scaled(self, values: Floats) -> Floats:
        """-1..1 over what was tried."""
        if self.log:
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
    """Trainings by trial: (T,) value of each parameter, trainings counted, and of them stuck."""

    x: Floats
    y: Floats
    n: Floats
    k: Floats


@dataclass(frozen=True, eq=False, slots=True)
class Surface:
    """The fitted model.

    Attributes:
        terms: Of the polynomial, in the order of the coefficients.
        coefficients: On the scale of -1..1.
        covariance: Of the coefficients; `None` where there is no maximum of the likelihood.
        quantile: Student's t for 95%.
        dispersion: Pearson's chi squared over its degrees of freedom: 1 where the trainings of a trial are independent
            and the model fits; what is above is overdispersion, or misfit.
    """

    terms: tuple[str, ...]
    coefficients: Floats
    covariance: Floats | None
    quantile: float
    dispersion: float


@dataclass(frozen=True, slots=True)
class ResidualBin:
    """Stuck trainings in one cell of the plane beside those expected.

    Attributes:
        x_low, x_high, y_low, y_high: The cell.
        n_trials, n: Trials and trainings in it.
        k: Trainings that are stuck.
        expected: Of them, by the model.
        z: (k - expected) over its standard deviation, by the spread of trials or that of independent trainings: the
            larger, since among few expected ones the former is far too small. `None` for a single trial.
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


@dataclass(frozen=True, eq=False, slots=True)
class PhaseDiagram:
    """The probability to end stuck over two parameters.

    Attributes:
        x, y: The parameters.
        trials: What was observed.
        surface: The model; `None` where there is nothing to fit, and `note` says why.
        note: What a reader must know to judge it.
    """

    x: Axis
    y: Axis
    trials: TrialCounts
    surface: Surface | None
    note: str

    def at(self, x: float | Floats, y: float | Floats) -> tuple[Floats, Floats, Floats]:
        """The probability with the bounds of its 95% band; bounds are NaN where no band is claimed.

        Raises:
            ValueError: If there is no model.
        """
        if self.surface is None:
            raise ValueError(f"no model was fitted: {self.note}")
        design = _design(*np.broadcast_arrays(self.x.scaled(np.asarray(x)), self.y.scaled(np.asarray(y))))
        design = design[..., : len(self.surface.terms)]
        predictor = design @ self.surface.coefficients
        if self.surface.covariance is None:
            spread = np.full(predictor.shape, np.nan)
        else:
            variance = np.einsum("...i,ij,...j->...", design, self.surface.covariance, design)
            spread = self.surface.quantile * np.sqrt(variance)
        return _expit(predictor), _expit(predictor - spread), _expit(predictor + spread)

    def grid(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """x (G,), y (G,), then the probability and the bounds of its band (G, G), rows by y."""
        axis = np.linspace(-1, 1, _GRID)
        x, y = self.x.values(axis), self.y.values(axis)
        return x, y, *self.at(x[None, :], y[:, None])

    def contour(self) -> list[Floats]:
        """The lines on which half of the trainings are stuck, each (n, 2): x and y; none outside of what was tried.

        Their 95% band is where the band of the probability holds 1/2.
        """
        from contourpy import contour_generator

        if self.surface is None:
            return []
        axis = np.linspace(-1, 1, _GRID)
        _, _, probability, _, _ = self.grid()
        lines = contour_generator(axis, axis, probability).lines(0.5)
        return [
            np.column_stack([self.x.values(line[:, 0]), self.y.values(line[:, 1])]) for line in map(np.array, lines)
        ]

    def pearson_residuals(self) -> Floats:
        """(T,) (k - n p) / sqrt(n p (1 - p)) of each trial; empty without a model."""
        if self.surface is None:
            return np.empty(0)
        probability, _, _ = self.at(self.trials.x, self.trials.y)
        return _pearson(self.trials, probability)

    def residuals(self) -> tuple[ResidualBin, ...]:
        """Observed against expected in up to 4 x 4 cells of equally many trials; empty without a model."""
        if self.surface is None:
            return ()
        probability, _, _ = self.at(self.trials.x, self.trials.y)
        found = []
        columns = _cells(self.trials.x)
        for x_low, x_high, in_column in columns:
            for y_low, y_high, in_row in _cells(self.trials.y[in_column]):
                inside = np.flatnonzero(in_column)[in_row]
                n, k = self.trials.n[inside], self.trials.k[inside]
                expected = n * probability[inside]
                independent = (expected * (1 - probability[inside])).sum()
                spread = float(np.sqrt(max(np.square(k - expected).sum(), independent)))
                z = float((k - expected).sum() / spread) if len(inside) > 1 and spread > 0 else None
                ends = (x_low, x_high, y_low, y_high)
                found.append(ResidualBin(*ends, len(inside), int(n.sum()), int(k.sum()), float(expected.sum()), z))
        return tuple(found)

    def to_arrow(self) -> pa.Table:
        """The surface on a grid: the parameters, `probability`, `low`, `high`; no rows without a model."""
        if self.surface is None:
            x = y = probability = low = high = np.empty((0, 0))
        else:
            x, y, probability, low, high = self.grid()
            x, y = np.meshgrid(x, y)
        numbers = {self.x.name: x, self.y.name: y, "probability": probability, "low": low, "high": high}
        return pa.table({name: pa.array(each.ravel(), from_pandas=True) for name, each in numbers.items()})

    def plot(self) -> "Figure":
        """The surface with its 50% line and band, trials as points, and the residuals beside it."""
        from attnsweep.orchestrator.analysis.phase.figure import phase_figure

        return phase_figure(self)


def read_phase_diagram(connection: duckdb.DuckDBPyConnection, specs: Sequence[Sweep], x: str, y: str) -> PhaseDiagram:
    """The phase diagram of a ledger; trials where one of the parameters is null are left out.

    Args:
        connection: From `Ledger.connect`.
        specs: Of its sweeps.
        x, y: Two parameters.

    Raises:
        UserError: For a parameter that is not there, or whose values are not numbers.
    """
    values = {name: values_of(connection, name) for name in (x, y)}
    for name, column in values.items():
        odd = next((each for each in column.values() if isinstance(each, bool | str)), None)
        if odd is not None:
            raise UserError(
                name, given=odd, expected="a parameter whose values are numbers", fix="take stuck_rates(by=[...])"
            )
    counts = connection.execute(
        "select trial, n_trainings - n_failed, n_stuck from trials where n_trainings > n_failed order by trial"
    ).fetchall()
    rows = [(values[x][trial], values[y][trial], n, k) for trial, n, k in counts]
    kept = np.array([row for row in rows if None not in row], dtype=np.float64)
    if not len(kept):
        raise UserError(
            f"{x}, {y}", given="null in every trial", expected="numbers", fix="choose parameters that were set"
        )
    trials = TrialCounts(*kept.T)
    weight = np.full(len(kept), trials.n.mean()) if trials_count_once(*specs) else trials.n
    diagram = fit_phase_diagram(_axis(specs, x, trials.x), _axis(specs, y, trials.y), trials, weight)
    if len(kept) == len(rows):
        return diagram
    left_out = f"{len(rows) - len(kept):,} trials without a value are left out"
    return dataclasses.replace(diagram, note=f"{diagram.note}; {left_out}")


def _axis(specs: Sequence[Sweep], name: str, values: Floats) -> Axis:
    return Axis(name, is_logarithmic(specs, name, values.tolist()), float(values.min()), float(values.max()))


def fit_phase_diagram(x: Axis, y: Axis, trials: TrialCounts, weight: Floats) -> PhaseDiagram:
    """Fits the model that the module describes.

    Args:
        x, y: The parameters.
        trials: Each with at least one training.
        weight: (T,) what each trial counts in the fit, in trainings.
    """
    n_trials, total, stuck = len(trials.n), int(trials.n.sum()), int(trials.k.sum())
    counted = f"{total:,} trainings of {n_trials:,} trials"
    if stuck in (0, total):
        which = "none" if stuck == 0 else "all"
        return PhaseDiagram(x, y, trials, None, f"{which} of {counted} are stuck: there is no boundary to fit")
    if x.low == x.high or y.low == y.high:
        same = x.name if x.low == x.high else y.name
        return PhaseDiagram(x, y, trials, None, f"{same} is the same in {counted}: there is no plane to fit")
    design = _design(x.scaled(trials.x), y.scaled(trials.y))
    n_terms = _supported_terms(design)
    if n_terms == 0:
        return PhaseDiagram(x, y, trials, None, f"too few for a model ({counted} in too few places of the plane)")
    design = design[:, :n_terms]
    note = f"{counted}; logit P(stuck) of {', '.join(TERMS[:n_terms])}"
    if _is_separated(design, trials):
        surface, why = None, "stuck and other trials are separated"
    else:
        surface, why = _maximum_likelihood(design, trials, weight, n_terms), "maximum likelihood does not converge"
    if surface is None:
        surface = _ridge(design, trials, weight, n_terms)
        note += f"; {why}: a ridge instead of maximum likelihood, and no band"
    return PhaseDiagram(x, y, trials, surface, note)


def _maximum_likelihood(design: Floats, trials: TrialCounts, weight: Floats, n_terms: int) -> Surface | None:
    """The surface; `None` where the iteration to it runs away."""
    import statsmodels.genmod.families as families
    from scipy import special
    from statsmodels.genmod.generalized_linear_model import GLM

    # A trial is one row: its score is the sum of its trainings', so that the groups are the rows.
    share, n_trials = trials.k / trials.n, len(trials.n)
    counts = np.column_stack([share * weight, (1 - share) * weight])
    groups = {"groups": np.arange(n_trials)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = GLM(counts, design, family=families.Binomial()).fit(cov_type="cluster", cov_kwds=groups)
    if not (fitted.converged and np.isfinite(fitted.params).all() and np.isfinite(fitted.cov_params()).all()):
        return None
    quantile = float(special.stdtrit(n_trials - n_terms, 0.975))
    dispersion = float(np.square(_pearson(trials, fitted.mu)).sum() / (n_trials - n_terms))
    return Surface(TERMS[:n_terms], np.asarray(fitted.params), np.asarray(fitted.cov_params()), quantile, dispersion)


def _ridge(design: Floats, trials: TrialCounts, weight: Floats, n_terms: int) -> Surface:
    import statsmodels.genmod.families as families
    from statsmodels.genmod.generalized_linear_model import GLM

    model = GLM(trials.k / trials.n, design, family=families.Binomial(), freq_weights=weight)
    penalty = np.full(n_terms, _RIDGE / len(trials.n))
    penalty[0] = 0.0
    coefficients = np.asarray(model.fit_regularized(alpha=penalty, L1_wt=0.0).params)
    dispersion = np.square(_pearson(trials, _expit(design @ coefficients))).sum() / max(len(trials.n) - n_terms, 1)
    return Surface(TERMS[:n_terms], coefficients, None, float("nan"), float(dispersion))


def _supported_terms(design: Floats) -> int:
    """The largest of the three models that the places of the trials determine, whatever became of them."""
    for n_terms in (6, 4, 3):
        enough = len(design) >= _TRIALS_PER_TERM * n_terms or (n_terms == 3 and len(design) > n_terms)
        if enough and np.linalg.matrix_rank(design[:, :n_terms]) == n_terms:
            return n_terms
    return 0


def _is_separated(design: Floats, trials: TrialCounts) -> bool:
    """Whether some direction of the coefficients raises the likelihood for ever: the linear program of Konis."""
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


def _design(x: Floats, y: Floats) -> Floats:
    """(..., 6) in the order of `TERMS`."""
    return np.stack([np.ones_like(x), x, y, x * y, x**2, y**2], axis=-1)


def _expit(predictor: Floats) -> Floats:
    from scipy import special

    return np.asarray(special.expit(predictor))


def _pearson(trials: TrialCounts, probability: Floats) -> Floats:
    expected = trials.n * probability
    return np.asarray((trials.k - expected) / np.sqrt(np.maximum(expected * (1 - probability), 1e-12)))


def _cells(values: Floats) -> Sequence[tuple[float, float, NDArray[np.bool_]]]:
    """Up to 4 ranges of about equally many values, the last with its upper end."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _RESIDUAL_BINS + 1)))
    if len(edges) == 1:
        return [(float(edges[0]), float(edges[0]), np.ones(len(values), bool))]
    place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    ranges = ((edges[at], edges[at + 1], place == at) for at in range(len(edges) - 1))
    return [(float(low), float(high), inside) for low, high, inside in ranges if inside.any()]
