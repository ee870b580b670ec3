"""The surface of a phase diagram: the probability of an ending at any point of the plane. Axes: T trial, G grid."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TERMS = ("1", "x", "y", "x y", "x^2", "y^2")
_GRID = 61


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
        from contourpy import contour_generator

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
