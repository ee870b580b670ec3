"""Predicts which trainings of system P run away from small initial weights (their weights grow without end), and how
often, for keys and queries merged into one matrix or factored into two. Derivation: docs/notes/merged_or_factored.md.

**Which starts run away, merged**: derived, with no constant to fit. The zero has two unstable modes, a faster and a
slower one. Weights that are multiples of the shift and of the mean, q = x U + w (J - U) and v = alpha (I - P) + beta P
(U is 1 at the previous position, J is all ones, P averages over categories), keep this form under gradient descent:
four numbers, which hold both modes. A small start is carried along these modes to where the loss bends. Whether it runs
away there is decided by its amplitudes c_+ and c_- alone: if |c_+| < C |c_-|^r with r = ln(1 + lr lambda_+) / ln(1 + lr
lambda_-). The constant C, one for equal and one for opposite signs, is where descent of these four numbers tips over.
The entries of a start are N(0, sigma^2), so the amplitudes are N(0, sigma^2) too and independent, and

    P(runaway) = mean over the two C of P(|z_+| < C |z_-|^r sigma^(r - 1)),  z_+, z_- ~ N(0, 1),

which is proportional to sigma^(r - 1) for sigma -> 0 and bends below that where it is no longer small.

**How the share of runaways falls with sigma, factored**: the exponent, derived at the border between two fates. Near
the zero, three factors descend along a form f of degree 3 in k, u and v: f = <T(v), k^t u>, T(v) = a U + b J, with a =
tr v - tr vP and b = tr vP. Its flow is scale-free: a start of size sigma takes the path of a start of size 1 until it
has grown by R ~ 1/sigma. Rays of this flow, starts that only grow, are the critical points of f on the sphere. On one
of them alpha and beta have opposite signs: b = -2 a / M, where all singular values of T are equal, the mean direction
being mirrored. Besides drift along the ray's family, it has one direction that leaves it, at a rate h times that at
which the ray grows: on one side beta takes over and turns alpha, on the other beta dies out. Starts that are still
there after growing by R fill a layer around that ray's basin border of width R^(1 - h), so that

    P(runaway) ~ sigma^(h - 1).

This is an argument of leading order, not a proof. Neither h nor the border depends on the learning rate, nor on how the
remainder of k^t u is spread over its directions.

**The scale-free flow of three factors**: descent from the zero in the limit of small starts.
Near the zero the loss is 1 minus a product of degree 3 in k, q and v, so that a start of size sigma takes the same path
as a start of size 1, only longer: it grows by a factor of about 1/sigma before the loss bends. How often alpha beta < 0
after growing by a factor R, and how often as strongly as on the border that is derived above, shows how the share of
runaways falls with sigma.

**Shares and slopes**: estimates that use which starts the law expects to run away.
The same seeds are trained at every sigma, and few run away at the smallest, so a slope through counts follows the luck
of those seeds: two draws of 12,288 gave 0.58 and 0.49. The fate of a training is nearly settled by its start, so the
shares are measured as the law's share plus the mean of (measured - expected): a control variate, without bias, whose
error is that of the seeds on which the law errs.

Axes: L start or training, F the four numbers, N, M, K = M - 1 as in `positions_only`, R rank (= M).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.reproduction.comparison import ComparedValue
from attnsweep.reproduction.rows import value_row

Floats = NDArray[np.float64]

_TINY = 1e-3
"""The slower mode's amplitude at the start of the descents that find the law's constant C: with 1e-8, C is the same
within 1e-5."""
_STEPS_AT_LEARNING_RATE_1 = 60
"""The steps, divided by the learning rate, that suffice to leave the gradient's zero and to either solve the task or
run away."""
_ROUNDS, _CANDIDATES = 4, 32


@dataclass(frozen=True, kw_only=True, slots=True)
class RunawayLaw:
    """Predicts from the small initial weights of a positions-only model (system P) whether its weights will grow
    without end (a runaway).

    Attributes:
        n_categories, n_positions: The sizes of the problem.
        growth: The growth per step of the faster and of the slower unstable mode of the zero, ln(1 + learning rate *
            lambda).
        modes: The directions of the two unstable modes, (2, 4), in the coordinates of `coordinates`.
        borders: The constant C of the law, for amplitudes of equal and of opposite sign, with the modes' signs as in
            `modes`.
    """

    n_categories: int
    n_positions: int
    growth: tuple[float, float]
    modes: Floats
    borders: tuple[float, float]

    @classmethod
    def of(cls, n_categories: int, n_positions: int, learning_rate: float) -> "RunawayLaw":
        """Derives the law that predicts in which trainings the weights grow without end (runaways), for a problem of
        the given size and a learning rate.
        """
        rates, modes_FF = modes_of_zero(n_categories, n_positions)
        growth = math.log1p(learning_rate * rates[3]), math.log1p(learning_rate * rates[2])
        modes = np.stack([modes_FF[3], modes_FF[2]])
        descent = _Descent(n_categories, n_positions, learning_rate)
        equal, opposite = (_law_border(descent, modes, growth[0] / growth[1], sign) for sign in (1.0, -1.0))
        sizes = {"n_categories": n_categories, "n_positions": n_positions}
        return cls(**sizes, growth=growth, modes=modes, borders=(equal, opposite))

    @property
    def exponent(self) -> float:
        """A derived exponent: for small initial weights, the probability that a training's weights grow without end is
        proportional to init_sigma, the standard deviation of the initial weights, to this power.

        The exponent is the growth of the faster mode (direction of growth near weights 0) divided by that of the slower
        one, minus 1.
        """
        return self.growth[0] / self.growth[1] - 1

    def share(self, sigma: float) -> float:
        """Predicts the probability that the weights of a training grow without end, given `sigma`, the standard
        deviation of its initial weights (`init_sigma`)."""
        from scipy.special import erf

        z, width = np.linspace(0.0, 9.0, 2_001, retstep=True)
        density = np.exp(-z * z / 2) * math.sqrt(2 / math.pi) * width
        reach = z ** (self.exponent + 1) * sigma**self.exponent / math.sqrt(2)
        return float(np.mean([density @ erf(border * reach) for border in self.borders]))

    def amplitudes(self, q_LMK: Tensor, v_LNN: Tensor) -> tuple[Floats, Floats]:
        """Splits small initial weights into their components, (n_starts,) each, along the two directions in which
        weights grow away from the point 0, where the gradient is 0: the faster direction and the slower one."""
        faster_L, slower_L = self.modes @ coordinates(q_LMK, v_LNN).T
        return faster_L, slower_L

    def forecast(self, faster_L: Floats, slower_L: Floats) -> NDArray[np.bool_]:
        """Returns whether trainings will run away (their weights grow without end), (n_starts,), given the components
        of their initial weights that `amplitudes` returns.
        """
        border_L = np.where(faster_L * slower_L > 0, *self.borders)
        return np.abs(faster_L) < border_L * np.abs(slower_L) ** (self.exponent + 1)


def fastest_rate(N: int, M: int) -> float:
    """Returns the fastest rate at which small weights grow under gradient descent, in the model whose attention depends
    on positions only. A step multiplies the weights by 1 + learning_rate * rate.

    It is lambda_+ of docs/theory.md.
    """
    return 2 / N * math.sqrt((M - 1) * ((N - 1 + M) / 2 + math.sqrt(((M - N + 1) / 2) ** 2 + N - 1)))


def coordinates(q_LMK: Tensor, v_LNN: Tensor) -> Floats:
    """Returns four numbers that summarize the weights of each model with attention by positions only, (n_starts, 4):
    two for the attention logits, and two for the value matrix.

    They are components of the weights along directions of unit length: the logits at the previous position, the logits
    at all others, and two parts of the value matrix.

    The parts of the values are those along I - P and along P, which averages over categories.
    """
    N, (M, K) = v_LNN.shape[1], q_LMK.shape[1:]
    on_L = q_LMK.diagonal(dim1=1, dim2=2).sum(1)
    beta_L = v_LNN.sum((1, 2)) / N
    alpha_L = (v_LNN.diagonal(dim1=1, dim2=2).sum(1) - beta_L) / math.sqrt(N - 1)
    off_L = (q_LMK.sum((1, 2)) - on_L) / math.sqrt(K * (M - 1))
    return np.stack([part_L.numpy() for part_L in (on_L / math.sqrt(K), off_L, alpha_L, beta_L)], 1)


def modes_of_zero(n_categories: int, n_positions: int) -> tuple[Floats, Floats]:
    """Returns the four independent directions (modes) along which weights near 0 grow or shrink under gradient descent,
    and the rate of each: first the rates, ascending, (4,), then the directions as rows, (4, 4).

    The coordinates are those of the function `coordinates`.

    Gradient descent multiplies the amplitude of a mode by 1 + lr rate in each step. Positive rates are unstable.
    """
    rates_F, modes_FF = np.linalg.eigh(_linear(n_categories, n_positions))
    return rates_F, modes_FF.T


def _linear(N: int, M: int) -> Floats:
    """Returns the negative Hessian (4, 4) of the loss at weights 0, where the gradient vanishes, in the four
    coordinates that the function `coordinates` returns.
    """
    K = M - 1
    half = np.zeros((4, 4))
    half[0, 2:] = math.sqrt(K * (N - 1)), math.sqrt(K)
    half[1, 3] = math.sqrt(K * (M - 1))
    return 2 / N * (half + half.T)


@dataclass(frozen=True, slots=True)
class _Descent:
    """Gradient descent of a model whose attention depends on positions only, computed with four coordinates of its
    weights instead of all weights.

    The function `coordinates` returns them. This is exact for weights that they describe in full.
    """

    N: int
    M: int
    learning_rate: float

    def runs_away(self, start_LF: Floats) -> NDArray[np.bool_]:
        """Returns for each start of gradient descent whether the weights then grow without end, (n_starts,). They do if
        the last two of their four coordinates, those of the value matrix, end with opposite signs."""
        end_LF = self.after(start_LF, round(_STEPS_AT_LEARNING_RATE_1 / self.learning_rate))
        return end_LF[:, 2] * end_LF[:, 3] < 0

    def after(self, start_LF: Floats, n_steps: int) -> Floats:
        """Takes `n_steps` steps of gradient descent from the given weights, and returns the new weights. Both are
        described by four coordinates, (n_starts, 4)."""
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


def _law_border(descent: _Descent, modes: Floats, ratio: float, sign: float) -> float:
    """Returns the constant C of the rule that predicts from small initial weights whether the weights grow without end.

    Weights run away if |c_+| < C |c_-|^r. Here c_+ and c_- are the components of the weights along the faster and the
    slower mode (direction of growth), and r is the ratio of the modes' growths; c_+ is positive and c_- has the given
    sign.
    """
    low, high = 1e-4, 1e4
    for _ in range(_ROUNDS):
        candidates = np.geomspace(low, high, _CANDIDATES)
        faster, slower = candidates * _TINY**ratio, np.full(_CANDIDATES, sign * _TINY)
        n_away = int(descent.runs_away(np.stack([faster, slower], 1) @ modes).sum())
        assert 0 < n_away < _CANDIDATES
        low, high = candidates[n_away - 1 : n_away + 1]
    return math.sqrt(low * high)


def border_ratio(n_categories: int, n_positions: int) -> float:
    """Returns the ratio of two coordinates of the value matrix, beta / alpha, that separates trainings which solve the
    task from trainings whose weights grow without end.

    It holds for system P in the limit of small initial weights, and is negative.
    """
    return -2 * (n_categories - 1) / n_positions


def factored_exponent(n_categories: int, n_positions: int) -> float:
    """Derives how the probability that a training's weights grow without end depends on the standard deviation sigma of
    the initial weights: for small sigma it is proportional to sigma to the returned power.

    In the model, keys and queries are two matrices. There must be at least 3 positions.
    """
    N, M, K = n_categories, n_positions, n_positions - 1
    shift, ones = np.eye(M, K), np.ones((M, K))
    # While the weights grow without end, the matrix of keys grows in proportion to the matrix of queries times the
    # matrix `pull`, and the other way round. `pull` is scaled such that both grow at the rate 1.
    b = -2 / M
    pull = shift + b * ones
    z = np.zeros((2, K))
    z[0], z[1, :2] = 1 / math.sqrt(K), (math.sqrt(0.5), -math.sqrt(0.5))
    weight = np.array([2 / (M * K), 1 / (N - 1) + 2 * (M - 2) / (M * M * K)])
    u = np.sqrt(weight)[:, None] * z
    k = u @ pull.T
    along_shift = math.sqrt(N - 1) * np.concatenate([(u @ shift.T), (k @ shift)], axis=1)
    along_mean = np.concatenate([u @ ones.T, k @ ones], axis=1)
    size = M + K
    hessian = np.zeros((2 * size + 2, 2 * size + 2))
    for channel in range(2):
        own = slice(channel * size, (channel + 1) * size)
        hessian[own, own] = np.block([[np.zeros((M, M)), pull], [pull.T, np.zeros((K, K))]])
        hessian[own, -2], hessian[own, -1] = along_shift[channel], along_mean[channel]
    hessian[-2:] = hessian[:, -2:].T
    ray = np.concatenate([*np.concatenate([k, u], axis=1), [1 / math.sqrt(N - 1), b]])
    assert np.allclose(hessian @ ray, 2 * ray)
    off_ray = hessian - 2 * np.outer(ray, ray) / (ray @ ray)
    return float(np.linalg.eigvalsh(off_ray)[-1]) - 1


FACTORS = (3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5)
_STEP = 0.05
"""The largest relative change of a weight matrix in one step of the scale-free flow."""
_STARTS_AT_ONCE = 2048


def opposed_shares(n_categories: int, n_positions: int, n_starts: int) -> list[list[str]]:
    """Tabulates, for random initial weights, how often two numbers that describe the value matrix (`alpha` and `beta`)
    have opposite signs after the matrix's norm has grown by each factor in `FACTORS`.

    Trainings that keep opposite signs run away.

    The last column is the share of starts with beta / alpha below half its value on the border between solving and
    running away.
    """
    opposed = torch.zeros(2, len(FACTORS), dtype=torch.int64)
    for first in range(0, n_starts, _STARTS_AT_ONCE):
        opposed += _opposed(n_categories, n_positions, min(_STARTS_AT_ONCE, n_starts - first), first)
    shares = opposed.double().numpy() / n_starts
    error = 1.96 * np.sqrt(shares * (1 - shares) / n_starts)
    lines = [["|v| / |v| at the start", "alpha beta < 0", "95% interval", "strongly", "95% interval"]]
    for factor, share, half in zip(FACTORS, shares.T, error.T, strict=True):
        cells = zip(share, half, strict=True)
        lines.append([f"{factor:g}", *(text for value, width in cells for text in (f"{value:.4f}", f"+- {width:.4f}"))])
    return lines


def _opposed(n_categories: int, n_positions: int, n_starts: int, seed: int) -> Tensor:
    """Starts from random weights and lets them grow. Counts for each factor in `FACTORS` the starts for which alpha and
    beta, two coordinates of the value matrix, have opposite signs once the matrix's norm has grown by the factor.

    The second row of the result, (2, n_factors), counts only those with beta / alpha below half of `border_ratio`.
    """
    draw = torch.Generator().manual_seed(seed)
    N, M, K = n_categories, n_positions, n_positions - 1
    shapes = ((M, M), (M, K), (N, N))
    k, q, v = (torch.randn(n_starts, *shape, generator=draw, dtype=torch.float64) for shape in shapes)
    shift, mean = torch.eye(M, K, dtype=torch.float64), torch.full((N, N), 1 / N, dtype=torch.float64)
    remainder, first_size = torch.eye(N, dtype=torch.float64) - mean, v.norm(dim=(1, 2))
    has_passed = torch.zeros(len(FACTORS), n_starts, dtype=torch.bool)
    is_opposed, is_strongly = torch.zeros_like(has_passed), torch.zeros_like(has_passed)
    grown = torch.ones(n_starts, dtype=torch.float64)
    factors = torch.tensor(FACTORS, dtype=torch.float64).unsqueeze(1)
    while not has_passed.all():
        logits, b = k.mT @ q, v.sum((1, 2)) / N
        a = v.diagonal(dim1=1, dim2=2).sum(1) - b
        pull = a.view(-1, 1, 1) * shift + b.view(-1, 1, 1)
        p, s = (logits * shift).sum((1, 2)).view(-1, 1, 1), logits.sum((1, 2)).view(-1, 1, 1)
        moves = (q @ pull.mT, k @ pull, p * remainder + s * mean)
        rates = [move.norm(dim=(1, 2)) / value.norm(dim=(1, 2)) for move, value in zip(moves, (k, q, v), strict=True)]
        step = (_STEP / torch.stack(rates).amax(0)).view(-1, 1, 1)
        k, q, v = (value + step * move for value, move in zip((k, q, v), moves, strict=True))
        # After each step all weights are divided by the same number, so that they do not grow. The gradients are
        # quadratic in the weights, so this does not change the direction of the gradient flow.
        size = v.norm(dim=(1, 2)) / first_size
        grown = grown * size
        k, q, v = (value / size.view(-1, 1, 1) for value in (k, q, v))
        passes = (grown >= factors) & ~has_passed
        is_opposed |= passes & (a * b < 0)
        is_strongly |= passes & (b * (N - 1) / a < border_ratio(N, M) / 2)
        has_passed |= passes
    return torch.stack([is_opposed.sum(1), is_strongly.sum(1)])


_LARGEST = 1e-2
"""The largest sigma at which agreement with the law is judged, because the law is of leading order in sigma. Beyond it
the values are only shown."""
_PRIOR_ERRORS = 2.0
"""This is added to the number of seeds on which the law errs, as Agresti and Coull do, so that the estimated error is
never 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """For the trainings at one `init_sigma`: which of them ran away, so that their weights grew without end, and for
    which of them a formula predicted it.

    Attributes:
        sigma: The `init_sigma` of the trainings.
        is_away: Whether each training ran away, (n_starts,) bool.
        expected: Whether the law expects it to, (n_starts,) bool.
    """

    sigma: float
    is_away: NDArray[np.bool_]
    expected: NDArray[np.bool_]


def corrected_share(share: float, draws: Sequence[Forecast]) -> tuple[float, float]:
    """Returns the share of runaways (trainings whose weights grow without end) at one `init_sigma`, and its standard
    error. The predicted share serves as a control variate.
    """
    n = sum(draw.is_away.size for draw in draws)
    more = sum(int((draw.is_away & ~draw.expected).sum()) for draw in draws)
    fewer = sum(int((draw.expected & ~draw.is_away).sum()) for draw in draws)
    return share + (more - fewer) / n, math.sqrt(more + fewer + _PRIOR_ERRORS) / n


def law_rows(law: RunawayLaw, forecasts: Sequence[Forecast]) -> list[ComparedValue]:
    """Compares a derived formula with measurements: for the share of trainings whose weights grow without end
    (runaways), and for how this share falls with `init_sigma`, the standard deviation of the initial weights. Also
    counts the seeds whose end the formula predicts wrongly.
    """
    sigmas = sorted({forecast.sigma for forecast in forecasts}, reverse=True)
    by_sigma = {sigma: [forecast for forecast in forecasts if forecast.sigma == sigma] for sigma in sigmas}
    derived = {sigma: law.share(sigma) for sigma in sigmas}
    shares = {sigma: corrected_share(derived[sigma], by_sigma[sigma]) for sigma in sigmas}
    rows = []
    for sigma, (share, error) in shares.items():
        n_wrong = sum(int((forecast.is_away != forecast.expected).sum()) for forecast in by_sigma[sigma])
        rows.append(
            _law_row(f"merged, sigma {sigma:g}: runaway, given the starts", derived[sigma], share, error, sigma)
        )
        rows.append(value_row("  seeds that do not as the law expects", n_wrong))
    for large, small in pairwise(sigmas):
        ratio = math.log(large / small)
        (high, high_error), (low, low_error) = shares[large], shares[small]
        if min(high, low) <= 0:
            continue
        error = math.hypot(high_error / high, low_error / low) / ratio
        name = f"merged: slope of log share against log sigma, {small:g} to {large:g}"
        slope = math.log(derived[large] / derived[small]) / ratio
        rows.append(_law_row(name, slope, math.log(high / low) / ratio, error, large))
    limit = f"{law.exponent:.4f} (derived)"
    return [*rows, value_row("  its limit for small sigma", "-", limit)]


def fitted_slope(
    sigmas: NDArray[np.float64], counts: NDArray[np.float64], n: NDArray[np.float64]
) -> tuple[float, float]:
    """Fits a straight line to the log of a share, `counts / n` of the trainings at each `init_sigma`, as a function of
    log `init_sigma`. Returns the slope and half the width of its 95% interval. A share weighs the more, the smaller its
    error is.

    The slope is for rates without a law that predicts each single training. Where the rate bends, local slopes differ.
    """
    share = counts / n
    weight = n * share / (1 - share)
    x, y = np.log(sigmas), np.log(share)
    centred = x - np.average(x, weights=weight)
    information = float((weight * centred**2).sum())
    return float((weight * centred * y).sum()) / information, 1.96 / math.sqrt(information)


def _law_row(name: str, derived: float, ours: float, error: float, largest: float) -> ComparedValue:
    low, high = ours - 1.96 * error, ours + 1.96 * error
    agrees = low <= derived <= high if largest <= _LARGEST else None
    return ComparedValue(name=name, published=f"{derived:.4g} (derived)", ours=ours, low=low, high=high, agrees=agrees)
