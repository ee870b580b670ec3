"""Checks equations of Shin & Matzinger 2025 for system C, where attention sees categories only: number 3.54 and the
equations before 3.71, by enumeration, autograd and a search for stationary points.

Some checks take the printed form (or their own claim) as an argument, so that tests can see a wrong form fail.

**Two families of stationary points in closed form**: those in which the row sums sg_i + d_i of the matrix v add up to
0. Their loss is E Y^2 - G, where Y is the target and G the gain derived below. `zero_row_sums` (each sg_i + d_i = 0)
and `zero_diagonal` (q(t,t) = 0, Sum_i (sg_i + d_i) = 0) contain the same predictors. With row sums 0, adding a(t) to
the columns of q changes no answer, and a(t) = -q(t,t) makes the diagonal 0; with a zero diagonal, the d_i change no
answer, and d_i = -sg_i makes the row sums 0. The families cross where both conditions hold.

At the crossing the rows of v are alike: p at the predecessor, o elsewhere. For a given ratio o : p the loss is
quadratic in the table q. Its minimum over q is E Y^2 - G, which defines the gain G, and the stationary points of the
loss are those of G as a function of the ratio. The loss of each column of q has a linear form g and a quadratic form
alpha + beta h h^t, where h is 1 off the diagonal and 0 on it, so that the column contributes g^t (alpha + beta h
h^t)^-1 g to G. Measured: a maximum of G has Hessian index 1, a minimum 2.

Axes: L member of a family, T text, M position, N category, K = M - 1 predicted position, R ratio tried. Letters and
derivations: docs/notes/2026-11-21-theory.md, system C.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnsweep.reproduction.shin.stationary import (
    EquationCheck,
    StationaryPoints,
    distance_to_levels,
    every_text,
    examined,
    family_error,
    family_of_categories_only,
    generator,
    largest_error,
    searched,
)
from attnsweep.workloads.category_pairs.categories_only import CategoriesOnly


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Logits, values, target, and probabilities of the categories."""

    q_NN: Tensor
    v_KM: Tensor
    target_NN: Tensor
    law_N: Tensor


_N_ANGLES = 1024
_N_ZOOMS = 6


@dataclass(frozen=True, slots=True)
class StationaryGain:
    """A maximum or minimum of the gain, at the angle whose tangent is the ratio of the two entries of v."""

    value: float
    angle: float
    index: int


def gain(angle_R: Tensor, target_NN: Tensor, n_positions: int) -> Tensor:
    """How much values cos(angle) at the predecessor and sin(angle) elsewhere can lower the output 0's loss, (R,)."""
    N = target_NN.shape[0]
    p_R, o_R = angle_R.cos(), angle_R.sin()
    sum_R = p_R + (n_positions - 2) * o_R
    n_R = p_R.square() + (n_positions - 2) * o_R.square()
    mean_N = target_NN.mean(0)
    h_NN = 1 - torch.eye(N).to(target_NN)
    g_RNN = _outer(p_R / N**2, h_NN * (target_NN - mean_N)) + _outer(sum_R / N**2, h_NN * mean_N)
    alpha_R, beta_R = n_R / N**2, (sum_R.square() - n_R) / N**3
    # The inverse of alpha I + beta h h^t, where h (a row of `h_NN`) has N - 1 ones, by Sherman and Morrison.
    correction_R = beta_R / (alpha_R + beta_R * (N - 1)) * g_RNN.sum(1).square().sum(1)
    return (g_RNN.square().sum((1, 2)) - correction_R) / alpha_R


def stationary_gains(target_NN: Tensor, n_positions: int) -> list[StationaryGain]:
    """The local maxima and minima of `gain`, by a search over angles from 0 to pi; at least 3 positions."""
    angles = torch.linspace(0.0, math.pi, _N_ANGLES + 1, dtype=torch.float64)[:-1]
    values = gain(angles, target_NN, n_positions)
    before, after = values.roll(1), values.roll(-1)
    maxima = angles[(values > before) & (values >= after)]
    minima = angles[(values < before) & (values <= after)]
    gains = []
    for starts, sign, index in ((maxima, 1.0, 1), (minima, -1.0, 2)):
        for start in starts.tolist():
            angle = _zoomed(lambda angle_R: gain(angle_R, target_NN, n_positions), start, sign)
            value = gain(angles.new_tensor([angle]), target_NN, n_positions).item()
            gains.append(StationaryGain(value, angle, index))
    return gains


def _zoomed(function: Callable[[Tensor], Tensor], angle: float, sign: float) -> float:
    width = math.pi / _N_ANGLES
    for _ in range(_N_ZOOMS):
        near = torch.linspace(angle - width, angle + width, 21, dtype=torch.float64)
        angle = near[(sign * function(near)).argmax()].item()
        width /= 10
    return angle


def _outer(factor_R: Tensor, table_NN: Tensor) -> Tensor:
    return factor_R.view(-1, 1, 1) * table_NN


SIZES = ((2, 3), (3, 4), (4, 3))
"""(N, M) of the checked problems, small because all their texts are enumerated."""
_N_MEMBERS = 16


def checks_of_categories() -> list[EquationCheck]:
    """In the paper's order."""
    return [
        loss(),
        *gradients(),
        zeros(),
        constant_predictor(),
        division_by_row_sums(),
        marginal_predictor(),
        between_levels("zero_row_sums"),
        between_levels("zero_diagonal"),
        solution(),
    ]


def _moments(task: Task) -> tuple[Tensor, ...]:
    """The letters of docs/notes/2026-11-21-theory.md, system C: d, sg, n, m, q and q* less their means, e."""
    law, v_KM = task.law_N, task.v_KM
    d_K = v_KM.diagonal(offset=1)
    sg_K, n_K = v_KM.sum(1) - d_K, v_KM.square().sum(1) - d_K.square()
    m_N, target_m_N = law @ task.q_NN, law @ task.target_NN
    e_KN = target_m_N - torch.outer(sg_K, m_N) - torch.outer(d_K, task.q_NN.diagonal())
    return d_K, sg_K, n_K, m_N, task.q_NN - m_N, task.target_NN - target_m_N, e_KN


def _closed_loss(task: Task) -> Tensor:
    _, _, n_K, _, q_NN, target_NN, e_KN = _moments(task)
    pairs_NN = torch.outer(task.law_N, task.law_N)
    V, C, target_V = ((pairs_NN * each).sum() for each in (q_NN.square(), q_NN * target_NN, target_NN.square()))
    return (target_V - 2 * task.v_KM.diagonal() * C + n_K * V + e_KN.square() @ task.law_N).sum()


def _half_gradients(task: Task) -> tuple[Tensor, Tensor]:
    """By q and by v, in closed form."""
    d_K, sg_K, n_K, m_N, q_NN, target_NN, e_KN = _moments(task)
    law, v_KM, pairs_NN = task.law_N, task.v_KM, torch.outer(task.law_N, task.law_N)
    read_NN = torch.outer(law, sg_K @ e_KN) + torch.diag(d_K @ e_KN)
    by_q = pairs_NN * (n_K.sum() * q_NN - v_KM.diagonal().sum() * target_NN) - law * read_NN
    V, C = (pairs_NN * q_NN.square()).sum(), (pairs_NN * q_NN * target_NN).sum()
    before, own = torch.eye(*v_KM.shape).double(), torch.eye(v_KM.shape[1]).double()[1:]
    off_own = V * v_KM - C * before - (e_KN @ (law * m_N)).unsqueeze(1)
    by_v = off_own * (1 - own) - own * (e_KN @ (law * task.q_NN.diagonal())).unsqueeze(1)
    return by_q, by_v


def loss() -> EquationCheck:
    errors = [largest_error(_closed_loss(task) - _enumerated_loss(task)) for task in _tasks()]
    return EquationCheck(
        "§3.3", "loss", "L_i = V* - 2 p_i C + n_i V + E e_i(t)^2, any law of categories", right_error=max(errors)
    )


def gradients(factor: float = 2.0) -> list[EquationCheck]:
    pairs = [zip(_true_gradients(task), _half_gradients(task), strict=True) for task in _tasks()]
    errors = ([largest_error(truth - factor * half) for truth, half in pair] for pair in pairs)
    by_q, by_v = map(max, zip(*errors, strict=True))
    values = "dL/dv_ij = 2V v_ij - 2C [j=i-1] - 2E[e_i m], j != i; dL/dv_ii = -2E[e_i D]"
    logits = "dL/dq(r,t) = 2 pi_r pi_t (-(Sum p) qt* + (Sum n) qt) - 2 pi_t Sum e_i(t)(sg_i pi_r + d_i [r=t])"
    return [
        EquationCheck("§3.3", "gradient by v", values, right_error=by_v),
        EquationCheck("§3.3", "gradient by q", logits, right_error=by_q),
    ]


def zeros(index: int = 3) -> EquationCheck:
    errors = []
    for N, M in SIZES:
        draw, target = _drawn(20, N)
        q = torch.randn(_N_MEMBERS, N, N, generator=draw, dtype=torch.float64)
        # With v = 0, the gradient is 0 at all q that are orthogonal to three matrices: the target minus the mean of its
        # rows, this mean in every row, and this mean on the diagonal.
        centred = target - target.mean(1, keepdim=True)
        marginal = target.mean(1, keepdim=True).expand_as(target)
        conditions = torch.stack([centred, marginal, torch.eye(N, dtype=torch.float64) * marginal], 1).flatten(2)
        q = _without(q.flatten(1), conditions).view_as(q)
        # With q = 0, the gradient is 0 at all v (queries by keys) whose sums are 0 over the keys right before their
        # query, over those at its own position, and over all but those.
        v = torch.randn(_N_MEMBERS, M - 1, M, generator=draw, dtype=torch.float64)
        before, own = torch.eye(M - 1, M, dtype=torch.float64), torch.eye(M, dtype=torch.float64)[1:]
        masks = torch.stack([before, own, 1 - own]).flatten(1).expand(_N_MEMBERS, -1, -1)
        v = _without(v.flatten(1), masks).view_as(v)
        for with_q, with_v in ((1, 0), (0, 1), (0, 0)):
            members = {"q_NN": with_q * q, "v_KM": with_v * v}
            found = examined(CategoriesOnly(N, M, softmax=False), members, {"target_NN": target})
            errors.append(family_error(found, target.square().mean((1, 2)), index, M - 1))
    return EquationCheck(
        "§3.3",
        "zeros",
        "zeros (q = 0, v = 0 or both): stationary, level E Y^2, Hessian index 3",
        right_error=max(errors),
    )


def constant_predictor() -> EquationCheck:
    """Not stationary: the columns of the gradient with respect to the logits do not sum to 0."""
    errors = []
    for N, M in SIZES:
        draw, target = _drawn(21, N)
        for target_NN in target:
            mean = target_NN.mean()
            v = torch.rand(M - 1, M, generator=draw, dtype=torch.float64)
            v = v / v.sum(1, keepdim=True)
            task = Task(
                q_NN=mean.expand(N, N), v_KM=v, target_NN=target_NN, law_N=torch.full((N,), 1 / N, dtype=torch.float64)
            )
            slope = _true_gradients(task)[0].sum(0)
            errors.append(largest_error(slope + 2 * (M - 1) / N * (target_NN.mean(0) - mean)))
    return EquationCheck(
        "§3.3",
        "constant predictor",
        "the constant predictor is not stationary: Sum_r dL/dq(r,t) = -2 K pi_t (m*(t) - E Y)",
        right_error=max(errors),
    )


def division_by_row_sums(n_solves: int = 120) -> EquationCheck:
    """3.54 divides by a sum of entries of v that can be 0, and so misses stationary points."""
    points, target = _search(n_solves)
    levels = (points.losses / points.parameters["v_KM"].shape[1])[points.converged]
    target = target[points.converged]
    total = points.parameters["v_KM"].sum((1, 2))[points.converged]
    known = {"solution": torch.zeros(()), "marginal": _marginal_level(target), "zero": target.square().mean((1, 2))}
    distance = torch.stack([(levels - level).abs() for level in known.values()]).amin(0)
    return EquationCheck(
        "3.54",
        "row sums",
        "dividing by the row sums: levels are 0, V* or E Y^2 alone only if Sum_i (sg_i + d_i) != 0",
        right_error=distance[total.abs() > 1e-6].max().item(),
        flaw="needs an assumption",
        printed_error=distance.max().item(),
        tolerance=1e-6,
    )


def marginal_predictor(index: int = 1) -> EquationCheck:
    errors, printed = [], []
    for N, M in SIZES:
        draw, target = _drawn(22, N)
        marginal, c = target.mean(1, keepdim=True), 0.5 + torch.rand(_N_MEMBERS, 1, 1, generator=draw).double()
        # First subfamily: every row of q is the mean of the target's rows over c, and each row of v sums to c. The
        # values of the keys right before their queries sum to 0.
        v = torch.randn(_N_MEMBERS, M - 1, M, generator=draw, dtype=torch.float64)
        before, own = torch.eye(M - 1, M, dtype=torch.float64), torch.eye(M, dtype=torch.float64)[1:]
        v = v - before * v.diagonal(dim1=1, dim2=2).mean(1).view(-1, 1, 1)
        v = v + own * (c - v.sum(2, keepdim=True))
        first = {"q_NN": (marginal / c).expand_as(target), "v_KM": v}
        # Second subfamily: v is c at the query's own position, and 0 elsewhere. The diagonal of q is the mean of the
        # target's rows over c, and q is orthogonal to the target minus this mean.
        on, centred = torch.eye(N, dtype=torch.float64), target - marginal
        q = torch.randn(_N_MEMBERS, N, N, generator=draw, dtype=torch.float64) * (1 - on) + on * marginal / c
        free = centred * (1 - on)
        q = q - free * ((q * centred).sum((1, 2)) / free.square().sum((1, 2))).view(-1, 1, 1)
        second = {"q_NN": q, "v_KM": c * own}
        for members in (first, second):
            found = examined(CategoriesOnly(N, M, softmax=False), members, {"target_NN": target})
            errors.append(family_error(found, _marginal_level(target), index, M - 1))
        known = {"solution": torch.zeros(()), "zero": target.square().mean((1, 2))}
        printed.append(distance_to_levels(_marginal_level(target), known))
    return EquationCheck(
        "§3.3",
        "marginal predictor",
        "marginal predictor E[Y | X_i], two subfamilies: stationary, level V*, index 1",
        right_error=max(errors),
        flaw="missed",
        printed_error=max(printed),
    )


def between_levels(family: str, n_solves: int = 120) -> EquationCheck:
    """The closed form of the loss at the points of a family that a search has found."""
    points, target = _search(n_solves)
    names = family_of_categories_only(
        points, {"marginal": _marginal_level(target), "zero": target.square().mean((1, 2))}
    )
    chosen = np.flatnonzero((names == family) & points.converged.numpy())
    # NaN refutes: where no point of the family was found, nothing was checked.
    errors, printed = ([], []) if chosen.size else ([float("nan")], [float("nan")])
    for lane in chosen.tolist():
        n_predicted, M = points.parameters["v_KM"].shape[1:]
        level, zero = points.losses[lane] / n_predicted, target[lane].square().mean()
        predicted = stationary_gains(target[lane], M)
        distance = (torch.tensor([gain.value for gain in predicted], dtype=torch.float64) - (zero - level)).abs()
        nearest = predicted[int(distance.argmin())]
        errors.append(largest_error(distance.min(), float(nearest.index - points.index[lane])))
        printed.append(distance_to_levels(level, {"solution": torch.zeros(()), "zero": zero}))
    members = {
        "zero_row_sums": "zero row sums, each sg_i + d_i = 0",
        "zero_diagonal": "zero diagonal, q(t,t) = 0 and Sum_i (sg_i + d_i) = 0",
    }
    return EquationCheck(
        "3.54" if family == "zero_row_sums" else "§3.3",
        family.replace("_", " "),
        f"{members[family]}: level E Y^2 - G, G a stationary value of G(o/p): a maximum has index 1, a minimum 2",
        right_error=max(errors),
        flaw="missed",
        printed_error=max(printed),
        tolerance=1e-6,
    )


def solution(printed_sign: float = -1.0, right_sign: float = 1.0) -> EquationCheck:
    """The sign in q = (q* + sign a(t)) / c, a(t) = -d/(1 + d) q*(t,t), with v = c before and c d on the diagonal."""
    errors: dict[float, list[float]] = {printed_sign: [], right_sign: []}
    for number, task in enumerate(_tasks()):
        M, d, c = task.v_KM.shape[1], (-0.4, 0.7, 2.0)[number % 3], 1.3
        a_N = -d / (1 + d) * task.target_NN.diagonal()
        v = c * (torch.eye(M - 1, M, dtype=torch.float64) + d * torch.eye(M, dtype=torch.float64)[1:])
        for sign, sign_errors in errors.items():
            q = (task.target_NN + sign * a_N) / c
            sign_errors.append(
                _enumerated_loss(Task(q_NN=q, v_KM=v, target_NN=task.target_NN, law_N=task.law_N)).item()
            )
    return EquationCheck(
        "before 3.71",
        "solution",
        "solutions q = (q* + a)/c, a(t) = -d/(1+d) q*(t,t); 'q_true = a + q' has the sign reversed",
        right_error=max(errors[right_sign]),
        printed_error=max(errors[printed_sign]),
    )


@functools.cache
def _search(n_solves: int) -> tuple[StationaryPoints, Tensor]:
    points, tasks = searched(CategoriesOnly(3, 4, softmax=False), n_solves, sigma=1.5)
    return points, tasks["target_NN"]


def _marginal_level(target_LNN: Tensor) -> Tensor:
    """The lowest loss of predictions that know only the second category, (L,)."""
    return target_LNN.var(dim=1, correction=0).mean(1)


def _drawn(seed: int, N: int) -> tuple[torch.Generator, Tensor]:
    draw = generator(seed + N)
    return draw, torch.randn(_N_MEMBERS, N, N, generator=draw, dtype=torch.float64)


def _tasks() -> list[Task]:
    tasks = []
    for N, M in SIZES:
        draw = generator(N + 10 * M)
        q, target = torch.randn(2, N, N, generator=draw, dtype=torch.float64)
        v = torch.randn(M - 1, M, generator=draw, dtype=torch.float64)
        law = torch.rand(N, generator=draw, dtype=torch.float64) + 0.1
        tasks.append(Task(q_NN=q, v_KM=v, target_NN=target, law_N=law / law.sum()))
    return tasks


def _without(vectors: Tensor, conditions: Tensor) -> Tensor:
    along: Tensor = torch.linalg.pinv(conditions) @ (conditions @ vectors.unsqueeze(2))
    return vectors - along.squeeze(2)


def _enumerated_loss(task: Task) -> Tensor:
    text = every_text(task.law_N.shape[0], task.v_KM.shape[1])
    read_TMK = task.q_NN[text.unsqueeze(2), text[:, 1:].unsqueeze(1)]
    error_TK = task.target_NN[text[:, :-1], text[:, 1:]] - torch.einsum("km,tmk->tk", task.v_KM, read_TMK)
    return task.law_N[text].prod(1) @ error_TK.square().sum(1)


def _true_gradients(task: Task) -> tuple[Tensor, Tensor]:
    """By q and by v, by autograd."""
    q, v = task.q_NN.clone().requires_grad_(), task.v_KM.clone().requires_grad_()
    loss = _enumerated_loss(Task(q_NN=q, v_KM=v, target_NN=task.target_NN, law_N=task.law_N))
    gradient_q, gradient_v = torch.autograd.grad(loss, (q, v))
    return gradient_q, gradient_v
