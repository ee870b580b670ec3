"""Checks equations of Shin & Matzinger 2025 for system P, where attention sees positions only: numbers 3.7-3.9, 3.18
and 3.33, by enumeration, autograd and least squares.

Some checks take the printed form (or their own claim) as an argument, so that tests can see a wrong form fail.
Axes: L member of a family, T text, M position, N category, K = M - 1 predicted position. Derivations:
docs/notes/2026-11-21-theory.md, system P.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad, jacrev

from attnsweep.reproduction.shin.stationary import (
    EquationCheck,
    distance_to_levels,
    every_text,
    examined,
    family_error,
    generator,
    largest_error,
    objective_of,
    searched,
)
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly, components
from attnsweep.workloads.engine.lbfgs import unflattened
from attnsweep.workloads.engine.optimizers import State

SIZES = ((2, 3), (3, 4), (4, 3))
"""(N, M) of the checked problems, small because all their texts are enumerated."""
_N_MEMBERS = 16
_SATURATED = 10.0
"""A column of attention is saturated if its logits spread by more than this: its smallest weight is then below e^-10 of
its largest."""


def checks_of_positions() -> list[EquationCheck]:
    """In the paper's order."""
    return [
        loss(),
        gradient_of_attention(),
        gradient_of_values(),
        centred_shift(),
        mean_predictor(),
        zeros(),
        escape_rates(),
        valley(),
        barrier(),
        bound_on_sigma(),
        softmax_has_no_stationary_point(),
        softmax_plateau(),
    ]


def printed_levels(n_categories: int) -> dict[str, float]:
    """The losses that the paper prints for stationary points."""
    return {"solution": 0.0, "mean": 1 - 1 / n_categories, "zero": 1.0}


def centred_shift_level(N: int, M: int) -> float:
    """Also the highest loss on the way from the solution into the valley at infinity."""
    return 1 / N + 1 / M - 1 / (N * M)


def valley_level(rho: Tensor, N: int, M: int) -> Tensor:
    """The lowest loss over all attention logits with the values v = alpha (I - P) + beta P, where P averages over
    categories and rho = beta / alpha. The valley at infinity is at negative `rho`."""
    return (1 - 1 / N) * (1 - rho).square() / ((N - 1) + M * rho.square())


def loss() -> EquationCheck:
    errors = []
    for N, M in SIZES:
        system = _random(N, M)
        errors.append(largest_error(system.population_loss() - system.sampled_loss(every_text(N, M))))
    return EquationCheck("§3.1", "loss", "L_i = 1 + (-2 p_i a - 2 s_i b + n_i A + s_i^2 B)/N", right_error=max(errors))


def by_attention(system: PositionsOnly) -> Tensor:
    """The gradient by the logits, (M, K): dL/dq_ji = 2/N (-a [j = i-1] - b + A q_ji + B s_i), with `components` and the
    sum s_i of column i."""
    a, b, A, B = components(system.v_NN)
    quadratic_MK = A * system.q_MK + B * system.q_MK.sum(0)
    return (2 / system.n_categories) * (quadratic_MK - a * shift(system.n_positions) - b)


def by_values(system: PositionsOnly) -> Tensor:
    """The gradient by the values, (N, N): 2/N (-(Sum p)(I-P) - (Sum s) P + (Sum n) v(I-P) + (Sum s^2) vP)."""
    N, q_MK, v_NN = system.n_categories, system.q_MK, system.v_NN
    mean_NN = mean(N)
    rest_NN = torch.eye(N, dtype=torch.float64) - mean_NN
    p, s_K = q_MK.diagonal().sum(), q_MK.sum(0)
    linear_NN = p * rest_NN + s_K.sum() * mean_NN
    return (2 / N) * (-linear_NN + q_MK.square().sum() * v_NN @ rest_NN + s_K.square().sum() * v_NN @ mean_NN)


def gradient_of_attention(printed_factor: float = -0.5) -> EquationCheck:
    return _gradient("dL/dq_ji = 2/N (-a [j=i-1] - b + A q_ji + B s_i)", "q_MK", by_attention, printed_factor)


def gradient_of_values(printed_factor: float = -0.5) -> EquationCheck:
    return _gradient(
        "dL/dv = 2/N (-(Sum p)(I-P) - (Sum s) P + (Sum n) v(I-P) + (Sum s^2) vP)", "v_NN", by_values, printed_factor
    )


def centred_shift() -> EquationCheck:
    """q = (U - 1/M) / c, v = c (I - P) + w 1^t, where the entries of w sum to -c (N - 1) / M."""
    printed, right = [], []
    for N, M in SIZES:
        draw = generator(3)
        c = 0.5 + torch.rand(_N_MEMBERS, 1, 1, generator=draw, dtype=torch.float64)
        w = torch.randn(_N_MEMBERS, N, 1, generator=draw, dtype=torch.float64)
        w = w - w.mean(1, keepdim=True) - c * (N - 1) / (M * N)
        v = c * (torch.eye(N, dtype=torch.float64) - mean(N)) + w
        found = examined(PositionsOnly(N, M, softmax=False), {"q_MK": (shift(M) - 1 / M) / c, "v_NN": v})
        right.append(family_error(found, centred_shift_level(N, M), 1, M - 1))
        printed.append(distance_to_levels(found.losses / (M - 1), printed_levels(N)))
    return EquationCheck(
        "3.33",
        "centred shift",
        "centred shift q = (U - 1/M)/c: stationary, level 1/N + 1/M - 1/(NM), index 1; never analysed",
        right_error=max(right),
        flaw="missed",
        printed_error=max(printed),
    )


def mean_predictor() -> EquationCheck:
    errors = []
    for N, M in SIZES:
        draw = generator(4)
        s = 0.5 + torch.rand(_N_MEMBERS, 1, 1, generator=draw, dtype=torch.float64)
        q = torch.randn(_N_MEMBERS, M, M - 1, generator=draw, dtype=torch.float64)
        q = q - _trace(q) / (M - 1) * shift(M)
        # The last position precedes no predicted one, so the last row is not in the trace, and can give each column the
        # sum s.
        q[:, -1] += (s - q.sum(1, keepdim=True)).squeeze(1)
        found = examined(PositionsOnly(N, M, softmax=False), {"q_MK": q, "v_NN": mean(N) / s})
        errors.append(family_error(found, 1 - 1 / N, 1, M - 1))
    return EquationCheck(
        "§3.1",
        "mean predictor",
        "mean predictor v = P/s, column sums s, Sum p = 0: stationary, level 1 - 1/N, index 1",
        right_error=max(errors),
    )


def zeros(index: int = 2) -> EquationCheck:
    errors = []
    for N, M in SIZES:
        draw = generator(5)
        q = torch.randn(_N_MEMBERS, M, M - 1, generator=draw, dtype=torch.float64)
        q = q - _trace(q) / (M - 1) * shift(M)
        q[:, -1] -= q.sum((1, 2)).unsqueeze(1) / (M - 1)
        v = torch.randn(_N_MEMBERS, N, N, generator=draw, dtype=torch.float64)
        v = v - v.mean((1, 2), keepdim=True)
        v = v - _trace(v) / (N - 1) * (torch.eye(N, dtype=torch.float64) - mean(N))
        for with_q, with_v in ((1, 0), (0, 1), (0, 0)):
            members = {"q_MK": with_q * q, "v_NN": with_v * v}
            found = examined(PositionsOnly(N, M, softmax=False), members)
            errors.append(family_error(found, 1.0, index, M - 1))
    return EquationCheck(
        "§3.1",
        "zeros",
        "zeros (q = 0, v = 0 or both): stationary, level 1, Hessian index 2 in all three subfamilies",
        right_error=max(errors),
    )


def escape_rates() -> EquationCheck:
    errors = []
    for N, M in SIZES:
        system = PositionsOnly(N, M, softmax=False)
        like = {name: value.new_zeros(1, *value.shape).double() for name, value in system.named_parameters()}
        curvature = torch.linalg.eigvalsh(_hessian_at_zero(system, like))
        root = math.sqrt(((M - N + 1) / 2) ** 2 + N - 1)
        rates = [(2 / N) * math.sqrt((M - 1) * ((N - 1 + M) / 2 + sign * root)) for sign in (1, -1)]
        errors.append(largest_error(curvature[:2] + torch.tensor(rates, dtype=torch.float64)))
        errors.append(largest_error(curvature[2:].clamp_max(0.0)))
    return EquationCheck(
        "§3.1",
        "escape rates",
        "escape rates at 0: 2/N sqrt(K [(N-1+M)/2 +- sqrt(((M-N+1)/2)^2 + N - 1)]), and no third",
        right_error=max(errors),
    )


def valley() -> EquationCheck:
    """Its lowest loss by rho, and the limit as rho falls."""
    errors, printed = [], []
    for N, M in SIZES:
        infimum = (1 - 1 / N) / M
        for rho in (-1000.0, -10.0, -1.0, -0.1, 0.5, 1.0, 3.0):
            v = 1.3 * (torch.eye(N, dtype=torch.float64) - mean(N)) + 1.3 * rho * mean(N)
            errors.append(largest_error(_best_level(v, M) - valley_level(torch.tensor(rho, dtype=torch.float64), N, M)))
        falling = valley_level(-torch.logspace(1, 12, 50, dtype=torch.float64), N, M)
        errors += [largest_error(falling[-1] - infimum), falling.diff().max().clamp_min(0.0).item()]
        known = printed_levels(N) | {"centred_shift": centred_shift_level(N, M)}
        printed.append(distance_to_levels(infimum, known))
    return EquationCheck(
        "§3.1",
        "valley at infinity",
        "valley: the best q at v = alpha (I-P) + beta P, rho = beta/alpha, leaves "
        "(1-1/N)(1-rho)^2/(N-1 + M rho^2), falling to (1-1/N)/M as rho -> -infinity",
        right_error=max(errors),
        flaw="missed",
        printed_error=min(printed),
    )


def barrier() -> EquationCheck:
    """If tr(v (I - P)) or tr(v P) is 0, the loss is at least 1/N."""
    errors = []
    for N, M in SIZES:
        rho = torch.linspace(-20.0, 1.0, 100_001, dtype=torch.float64)
        top = valley_level(torch.tensor(-(N - 1) / M, dtype=torch.float64), N, M)
        errors.append(largest_error(top - centred_shift_level(N, M)))
        errors.append((valley_level(rho, N, M).max() - top).clamp_min(0.0).item())
        draw = generator(6)
        rest_NN = torch.eye(N, dtype=torch.float64) - mean(N)
        for member in range(_N_MEMBERS):
            v = torch.randn(N, N, generator=draw, dtype=torch.float64)
            a, b, _, _ = components(v)
            v = v - a / (N - 1) * rest_NN if member % 2 else v - b * mean(N)
            errors.append((1 / N - _best_level(v, M)).clamp_min(0.0).item())
        errors.append(largest_error(_best_level(rest_NN, M) - 1 / N))
    return EquationCheck(
        "§3.1",
        "barrier",
        "a b = 0 costs 1/N at least, so that descent under 1/N with a b < 0 never solves; on the way along "
        "rho the top, at rho = -(N-1)/M, is the level of 3.33",
        right_error=max(errors),
    )


def bound_on_sigma(printed_exponent: float = -0.5, right_exponent: float = -0.75) -> EquationCheck:
    """The init_sigma at which the linear and the cubic term of the gradient have equal size."""
    sizes, crossings = torch.tensor([16.0, 32.0, 64.0, 128.0], dtype=torch.float64), []
    draw = generator(7)
    for N in sizes.int().tolist():
        v = torch.randn(400, N, N, generator=draw, dtype=torch.float64)
        abAB = torch.stack([torch.stack(components(member)) for member in v])
        # At init_sigma, the linear term of the gradient is init_sigma times what it is at 1, the cubic init_sigma^3
        # times. So both are equal where init_sigma^2 = linear / cubic.
        crossings.append((abAB[:, 0].square().mean().sqrt() / abAB[:, 2].mean()).sqrt())
    steps = torch.stack(crossings).log()
    x = sizes.log() - sizes.log().mean()
    slope = ((x * steps).sum() / x.square().sum()).item()
    return EquationCheck(
        "§3.1",
        "bound on sigma",
        "the terms compared, a and A q_ji, are equal at sigma ~ N^(-3/4), not N^(-1/2)",
        right_error=abs(slope - right_exponent),
        printed_error=abs(slope - printed_exponent),
        tolerance=0.05,
    )


def softmax_has_no_stationary_point(n_solves: int = 60, saturated: float = _SATURATED) -> EquationCheck:
    """With the best values, a higher logit on the previous position always lowers the loss."""
    errors = []
    for N, M in SIZES:
        p = torch.linspace(0.05, 0.99, _N_MEMBERS, dtype=torch.float64)
        other = (1 - p) / (M - 1)
        n = p.square() + (M - 1) * other.square()
        alpha = p / n
        weights = other.view(-1, 1, 1) + (p - other).view(-1, 1, 1) * shift(M)
        mean_NN = mean(N)
        v = alpha.view(-1, 1, 1) * (torch.eye(N, dtype=torch.float64) - mean_NN) + mean_NN
        _, gradients = objective_of(PositionsOnly(N, M, softmax=True)).evaluate({"q_MK": weights.log(), "v_NN": v}, 0)
        pull = -(2 / N) * alpha * (N - 1) * p * (1 - p) * other / n
        errors += [largest_error(gradients["v_NN"]), largest_error(gradients["q_MK"].diagonal(dim1=1, dim2=2).T - pull)]
    found, _ = searched(PositionsOnly(3, 4, softmax=True), n_solves, sigma=1.2)
    spread = (found.parameters["q_MK"].amax(1) - found.parameters["q_MK"].amin(1)).amax(1)
    stays = spread < saturated
    return EquationCheck(
        "§3.2",
        "softmax, points",
        "no stationary point at finite logits: at the best v, dL/dlogit = -(2/N) a p(1-p)^2/((M-1) n) < 0",
        right_error=max(*errors, stays.double().mean().item()),
    )


def softmax_plateau() -> EquationCheck:
    """The lowest loss that any values reach, if each query attends to one position."""
    errors = []
    for N, M in SIZES:
        draw = generator(8)
        for _ in range(_N_MEMBERS):
            read_K = torch.randint(M, (M - 1,), generator=draw)
            weights_MK = torch.nn.functional.one_hot(read_K, M).T.double()
            p, n = weights_MK.diagonal().sum(), weights_MK.square().sum()
            level = (1 - 1 / N) * (1 - p.square() / ((M - 1) * n))
            errors.append(largest_error(_best_level_of_values(weights_MK, N) - level))
    return EquationCheck(
        "§3.2",
        "softmax, plateaus",
        "saturated columns make plateaus at (1-1/N)(1 - (Sum p)^2/(K Sum n)); 0 where all are right",
        right_error=max(errors),
    )


def _gradient(
    statement: str, name: str, right: Callable[[PositionsOnly], Tensor], printed_factor: float
) -> EquationCheck:
    printed_errors, right_errors = [], []
    for N, M in SIZES:
        system = _random(N, M)
        truth = torch.autograd.grad(system.sampled_loss(every_text(N, M)), dict(system.named_parameters())[name])[0]
        closed = right(system).detach()
        right_errors.append(largest_error(closed - truth))
        printed_errors.append(largest_error(printed_factor * closed - truth))
    return EquationCheck(
        "3.7-3.9, 3.18",
        "gradient by " + name[0],
        f"{statement}; printed: -1/2 of it",
        right_error=max(right_errors),
        printed_error=max(printed_errors),
    )


def _random(N: int, M: int) -> PositionsOnly:
    system = PositionsOnly(N, M, softmax=False).double()
    draw = generator(N + 10 * M)
    for value in system.parameters():
        value.data.normal_(generator=draw)
    return system


def _trace(matrices: Tensor) -> Tensor:
    return matrices.diagonal(dim1=1, dim2=2).sum(1).view(-1, 1, 1)


def _hessian_at_zero(system: PositionsOnly, like: State) -> Tensor:
    objective = objective_of(system)
    n = sum(value.numel() for value in like.values())

    def loss_at(point: Tensor) -> Tensor:
        return objective.losses(unflattened(point.unsqueeze(0), like)).sum()

    result: Tensor = jacrev(grad(loss_at))(torch.zeros(n, dtype=torch.float64))
    return result


def _best_level(v_NN: Tensor, M: int) -> Tensor:
    """On all texts, with the best attention."""
    N = v_NN.shape[0]
    one_hot_TMN = torch.eye(N, dtype=torch.float64)[every_text(N, M)]
    readings = (one_hot_TMN @ v_NN.T).transpose(1, 2).reshape(-1, M)
    wanted = one_hot_TMN[:, :-1].transpose(1, 2).reshape(-1, M - 1)
    # `gelsd` (SVD), because `readings` lacks full rank if the value matrix is singular.
    fitted = torch.linalg.lstsq(readings, wanted, driver="gelsd").solution
    level: Tensor = N * (readings @ fitted - wanted).square().mean()
    return level


def _best_level_of_values(weights_MK: Tensor, N: int) -> Tensor:
    """On all texts, with the best values."""
    one_hot_TMN = torch.eye(N, dtype=torch.float64)[every_text(N, weights_MK.shape[0])]
    context = torch.einsum("jk,tjn->tkn", weights_MK, one_hot_TMN).reshape(-1, N)
    wanted = one_hot_TMN[:, :-1].reshape(-1, N)
    fitted = torch.linalg.lstsq(context, wanted, driver="gelsd").solution
    level: Tensor = N * (context @ fitted - wanted).square().mean()
    return level


def shift(M: int) -> Tensor:
    """(M, K): each predicted position reads the one before it."""
    return torch.eye(M, M - 1, dtype=torch.float64)


def mean(N: int) -> Tensor:
    return torch.full((N, N), 1 / N, dtype=torch.float64)
