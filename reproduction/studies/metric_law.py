"""Which small starts of system P run away, merged: derived, with no constant to fit.

The zero has two unstable modes, a faster and a slower one. Weights that are multiples of the shift and of the mean, q
= x U + w (J - U) and v = alpha (I - P) + beta P, stay so under gradient descent: four numbers, which hold both modes.
A small start is carried along these modes to where the loss bends. Whether it runs away there is decided by its
amplitudes c_+ and c_- alone: if |c_+| < C |c_-|^r with r = ln(1 + lr lambda_+) / ln(1 + lr lambda_-). The constant C,
one for equal and one for opposite signs, is where descent of these four numbers tips over. The entries of a start are
N(0, sigma^2), so the amplitudes are N(0, sigma^2) too and independent, and

    P(runaway) = mean over the two C of P(|z_+| < C |z_-|^r sigma^(r - 1)),  z_+, z_- ~ N(0, 1),

which is proportional to sigma^(r - 1) for sigma -> 0 and bends below that where it is no longer small.

Axes: L start, F the four numbers, N, M, K = M - 1 as in `positions_only`.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]

_TINY = 1e-3
"""The slower mode's amplitude where descent starts from: at 1e-8, C is the same within 1e-5."""
_STEPS_AT_LEARNING_RATE_1 = 60
"""Enough to leave the zero from there and to fall to one side of the border."""
_ROUNDS, _CANDIDATES = 4, 32


@dataclass(frozen=True, kw_only=True, slots=True)
class RunawayLaw:
    """The law of one system P.

    Attributes:
        n_categories, n_positions: N, M.
        growth: ln(1 + lr lambda) of the faster and of the slower mode, per step.
        modes: (2, 4) their directions, as `coordinates` measures them.
        borders: C for amplitudes of equal and of opposite sign, with the modes' signs as in `modes`.
    """

    n_categories: int
    n_positions: int
    growth: tuple[float, float]
    modes: Floats
    borders: tuple[float, float]

    @classmethod
    def of(cls, n_categories: int, n_positions: int, learning_rate: float) -> "RunawayLaw":
        """Derives the law for gradient descent with this learning rate."""
        rates, modes_FF = np.linalg.eigh(_linear(n_categories, n_positions))
        growth = math.log1p(learning_rate * rates[3]), math.log1p(learning_rate * rates[2])
        modes = np.stack([modes_FF[:, 3], modes_FF[:, 2]])
        descent = _Descent(n_categories, n_positions, learning_rate)
        equal, opposite = (_border(descent, modes, growth[0] / growth[1], sign) for sign in (1.0, -1.0))
        return cls(
            n_categories=n_categories,
            n_positions=n_positions,
            growth=growth,
            modes=modes,
            borders=(equal, opposite),
        )

    @property
    def exponent(self) -> float:
        """r - 1: the slope of log P against log sigma, for sigma -> 0."""
        return self.growth[0] / self.growth[1] - 1

    def share(self, sigma: float) -> float:
        """P(runaway) at this `init_sigma`."""
        from scipy.special import erf

        z, width = np.linspace(0.0, 9.0, 2_001, retstep=True)
        density = np.exp(-z * z / 2) * math.sqrt(2 / math.pi) * width
        reach = z ** (self.exponent + 1) * sigma**self.exponent / math.sqrt(2)
        return float(np.mean([density @ erf(border * reach) for border in self.borders]))

    def amplitudes(self, q_LMK: Tensor, v_LNN: Tensor) -> tuple[Floats, Floats]:
        """(L,) amplitudes of the faster and the slower mode in these weights."""
        faster_L, slower_L = self.modes @ coordinates(q_LMK, v_LNN).T
        return faster_L, slower_L

    def forecast(self, faster_L: Floats, slower_L: Floats) -> NDArray[np.bool_]:
        """(L,) whether trainings with these amplitudes at their start will run away."""
        border_L = np.where(faster_L * slower_L > 0, *self.borders)
        return np.abs(faster_L) < border_L * np.abs(slower_L) ** (self.exponent + 1)


def coordinates(q_LMK: Tensor, v_LNN: Tensor) -> Floats:
    """(L, 4) the parts of the weights along the shift, off it, along I - P and along P, in orthonormal directions."""
    N, (M, K) = v_LNN.shape[1], q_LMK.shape[1:]
    on_L = q_LMK.diagonal(dim1=1, dim2=2).sum(1)
    beta_L = v_LNN.sum((1, 2)) / N
    alpha_L = (v_LNN.diagonal(dim1=1, dim2=2).sum(1) - beta_L) / math.sqrt(N - 1)
    off_L = (q_LMK.sum((1, 2)) - on_L) / math.sqrt(K * (M - 1))
    return np.stack([each.numpy() for each in (on_L / math.sqrt(K), off_L, alpha_L, beta_L)], 1)


def _linear(N: int, M: int) -> Floats:
    """(4, 4) minus the Hessian at the zero, in the coordinates."""
    K = M - 1
    half = np.zeros((4, 4))
    half[0, 2:] = math.sqrt(K * (N - 1)), math.sqrt(K)
    half[1, 3] = math.sqrt(K * (M - 1))
    return 2 / N * (half + half.T)


@dataclass(frozen=True, slots=True)
class _Descent:
    """Gradient descent of the four numbers: that of `PositionsOnly.population_loss` on weights of this form."""

    N: int
    M: int
    learning_rate: float

    def runs_away(self, start_LF: Floats) -> NDArray[np.bool_]:
        """(L,) whether alpha and beta have opposite signs in the end."""
        end_LF = self.after(start_LF, round(_STEPS_AT_LEARNING_RATE_1 / self.learning_rate))
        return end_LF[:, 2] * end_LF[:, 3] < 0

    def after(self, start_LF: Floats, n_steps: int) -> Floats:
        """(L, 4) the coordinates after some steps."""
        N, M, K = self.N, self.M, self.M - 1
        size = np.sqrt([K, K * (M - 1), N - 1, 1])
        on, off, alpha, beta = (start_LF / size).T
        for _ in range(n_steps):
            s, A, B = on + (M - 1) * off, (N - 1) * alpha**2, beta**2
            n, rate = on**2 + (M - 1) * off**2, 2 * self.learning_rate / N
            moves = (
                (N - 1) * alpha + beta - A * on - B * s,
                beta - A * off - B * s,
                K * (on - n * alpha),
                K * (s - s**2 * beta),
            )
            on, off, alpha, beta = (
                value + rate * move for value, move in zip((on, off, alpha, beta), moves, strict=True)
            )
        return np.stack([on, off, alpha, beta], 1) * size


def _border(descent: _Descent, modes: Floats, ratio: float, sign: float) -> float:
    """C: the largest |c_+| / |c_-|^r that runs away, with c_- of this sign and c_+ > 0."""
    low, high = 1e-4, 1e4
    for _ in range(_ROUNDS):
        candidates = np.geomspace(low, high, _CANDIDATES)
        faster, slower = candidates * _TINY**ratio, np.full(_CANDIDATES, sign * _TINY)
        n_away = int(descent.runs_away(np.stack([faster, slower], 1) @ modes).sum())
        assert 0 < n_away < _CANDIDATES
        low, high = candidates[n_away - 1 : n_away + 1]
    return math.sqrt(low * high)
