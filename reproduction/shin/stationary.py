"""Searches for stationary points of a loss from many starts at once, and determines their Hessian index: the number of
directions in which the loss curves down.

Minimizes |gradient|^2 / 2 by damped least squares (Levenberg-Marquardt on the gradient, whose Jacobian is the Hessian):
unlike descent it converges to saddles too, and unlike plain Newton it copes with the singular Hessians of continuous
families. The Hessian is formed, so problems must be small.
Axes: L lane, n parameter, K predicted position.
Source: Nocedal & Wright 2006, section 10.3. The families: docs/notes/2026-11-21-theory.md.

Families, with Hessian index: of system P `solution` 0, `centred_shift` 1, `mean` 1, `zero` 2; of system C `solution` 0,
`marginal` 1, `zero` 3, all recognized by their losses. Two more of system C, index 1 or 2, have losses between, which
depend on the target: the row sums sg_i + d_i of the matrix v add up to 0 over the predicted positions. In
`zero_row_sums` each is 0; in `zero_diagonal` q(t, t) = 0. Measured: every point found by search is in a family.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import grad, grad_and_value, jacrev, vmap

from attnsweep.workloads.category_pairs.categories_only import CategoriesOnly
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly
from attnsweep.workloads.diagnostics.objective import Objective
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.lbfgs import flattened, unflattened
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.streams import Streams

_FLAT = 1e-6
"""An eigenvalue below this share of the largest counts as 0: it belongs to a direction along a family of points,
neither up nor down."""
_FAR = 1e3
"""A point of larger norm counts as diverging to infinity, where gradients vanish although there is no stationary
point."""


@dataclass(frozen=True, slots=True)
class StationaryPoints:
    """Where searches ended. Tensors are (L,), parameters (L, ...) by name.

    Attributes:
        converged: Whether the end is a finite point with a vanishing gradient.
    """

    parameters: State
    losses: Tensor
    gradient_norm: Tensor
    index: Tensor
    converged: Tensor


def find_stationary_points(
    objective: Objective, parameters: State, n_iterations: int = 200, tolerance: float = 1e-10
) -> StationaryPoints:
    """One search from each starting point, (L, ...) by name, which should be in float64.

    Args:
        n_iterations: At most so many, each with one Hessian.
        tolerance: Below this gradient norm a point counts as stationary.
    """
    derivatives = _Derivatives(objective, parameters)
    point = flattened(parameters)
    _, gradient = derivatives.first(point)
    damping = gradient.new_ones(gradient.shape[0])
    for _ in range(n_iterations):
        curvature, axes = torch.linalg.eigh(derivatives.second(point))
        # Along each axis of the Hessian, the damped least-squares step is a division.
        gradient_along = torch.einsum("lij,li->lj", axes, gradient)
        step = -curvature / (curvature.square() + damping.unsqueeze(1)) * gradient_along
        candidate = point + torch.einsum("lij,lj->li", axes, step)
        _, its_gradient = derivatives.first(candidate)
        # A search moves only to a smaller gradient; then it damps less, else more.
        is_better = its_gradient.norm(dim=1) < gradient.norm(dim=1)
        point = torch.where(is_better.unsqueeze(1), candidate, point)
        gradient = torch.where(is_better.unsqueeze(1), its_gradient, gradient)
        damping = torch.where(is_better, damping / 4, damping * 4).clamp(1e-16, 1e8)
        if bool((gradient.norm(dim=1) < tolerance).all()):
            break
    losses, gradient = derivatives.first(point)
    curvature = torch.linalg.eigvalsh(derivatives.second(point))
    scale = curvature.abs().amax(1, keepdim=True)
    gradient_norm = gradient.norm(dim=1)
    return StationaryPoints(
        parameters=unflattened(point, parameters),
        losses=losses,
        gradient_norm=gradient_norm,
        index=(curvature < -_FLAT * scale).sum(1),
        converged=(gradient_norm < tolerance) & (point.norm(dim=1) < _FAR),
    )


def nearest_level(
    losses: NDArray[np.float64], levels: Mapping[str, NDArray[np.float64]], tolerance: float = 1e-6
) -> NDArray[np.str_]:
    """The name of the level that each loss equals within the tolerance, else `none`."""
    names = np.array([*levels, "none"])
    distance = np.stack([np.abs(losses - level) for level in levels.values()])
    nearest = distance.argmin(0)
    return np.where(distance.min(0) <= tolerance, names[nearest], "none")


class _Derivatives:
    def __init__(self, objective: Objective, like: State) -> None:
        one_lane = {name: value[:1] for name, value in like.items()}

        def loss(point: Tensor, buffers: State, batch: State) -> Tensor:
            parameters = {name: value[0] for name, value in unflattened(point.unsqueeze(0), one_lane).items()}
            return objective.one_lane(parameters, buffers, batch)

        self._objective = objective
        self._first = vmap(grad_and_value(loss))
        # Reverse mode twice: forward mode would call a deprecated function of PyTorch.
        self._second = vmap(jacrev(grad(loss)))

    def first(self, point: Tensor) -> tuple[Tensor, Tensor]:
        gradients, losses = self._first(point, self._objective.buffers, self._objective.batch)
        return losses, gradients

    def second(self, point: Tensor) -> Tensor:
        """The Hessians, (L, n, n)."""
        result: Tensor = self._second(point, self._objective.buffers, self._objective.batch)
        return result


_ZERO = 1e-4
"""What counts as 0. Where two families cross, the gradient is of second order in the distance, so a gradient norm of
1e-10 allows a distance of 1e-5."""


def family_of_positions_only(points: StationaryPoints, levels: dict[str, Tensor]) -> NDArray[np.str_]:
    n_predicted = points.parameters["q_MK"].shape[2]
    return _by_level(points, levels, ("centred_shift", "mean", "zero"), n_predicted)


def family_of_categories_only(points: StationaryPoints, levels: dict[str, Tensor]) -> NDArray[np.str_]:
    """By losses, else by row sums and diagonal."""
    row_sums_LK = points.parameters["v_KM"].sum(2)
    diagonal_LN = points.parameters["q_NN"].diagonal(dim1=1, dim2=2)
    by_level = _by_level(points, levels, ("marginal", "zero"), row_sums_LK.shape[1])
    has_zero_sums = (row_sums_LK.abs().amax(1) < _ZERO).numpy()
    has_zero_diagonal = ((row_sums_LK.sum(1).abs() < _ZERO) & (diagonal_LN.abs().amax(1) < _ZERO)).numpy()
    otherwise = np.select([has_zero_sums, has_zero_diagonal], ["zero_row_sums", "zero_diagonal"], "none")
    return np.where(by_level == "none", otherwise, by_level)


def _by_level(
    points: StationaryPoints, levels: dict[str, Tensor], names: tuple[str, ...], n_predicted: int
) -> NDArray[np.str_]:
    losses = points.losses.detach() / n_predicted
    known = {"solution": torch.zeros_like(losses)} | {name: levels[name] for name in names}
    return nearest_level(losses.numpy(), {name: level.expand_as(losses).numpy() for name, level in known.items()})


System = PositionsOnly | CategoriesOnly
Verdict = Literal["holds", "misprinted", "needs an assumption", "missed", "ours holds", "refuted"]


@dataclass(frozen=True, slots=True)
class EquationCheck:
    """One equation of Shin & Matzinger 2025, checked numerically.

    Attributes:
        equation, subject: Its numbers in the paper, or its section; and what it is about, in a few words.
        statement: The right form, in words and symbols.
        right_error: The largest error of the right form.
        printed_error: That of the printed form; `None` if the paper's text is not available.
        flaw: How the right form differs from the printed one: other symbols, a restriction, something added.
        tolerance: The largest error that rounding explains.
    """

    equation: str
    subject: str
    statement: str
    right_error: float
    printed_error: float | None = None
    flaw: Literal["misprinted", "needs an assumption", "missed"] = "misprinted"
    tolerance: float = 1e-9

    @property
    def verdict(self) -> Verdict:
        """`holds` if the printed form is right; its `flaw` if only our form is; `refuted` if neither is. Without a
        printed form, `ours holds` or `refuted`."""
        if self.printed_error is not None and self.printed_error <= self.tolerance:
            return "holds"
        # `not <=`, so that NaN is refuted too.
        if not self.right_error <= self.tolerance:
            return "refuted"
        return "ours holds" if self.printed_error is None else self.flaw


def largest_error(*differences: Tensor | float) -> float:
    """NaN if any entry is."""
    flat = [torch.as_tensor(difference, dtype=torch.float64).abs().flatten() for difference in differences]
    return torch.cat(flat).max().item()


def every_text(n_categories: int, n_positions: int) -> Tensor:
    """All texts, (n_categories^n_positions, n_positions)."""
    return torch.tensor(list(itertools.product(range(n_categories), repeat=n_positions)))


def generator(seed: int) -> torch.Generator:
    """Each run checks the same parameters."""
    return torch.Generator().manual_seed(seed)


def objective_of(system: System, tasks: State | None = None) -> Objective:
    """The exact loss, summed over predicted positions. `tasks`: buffers, (L, ...), such as targets."""

    def loss(module: nn.Module, _: Batch) -> Tensor:
        return cast(System, module).population_loss()

    return Objective(system.double(), loss, tasks or {}, {})


def examined(system: System, members: State, tasks: State | None = None) -> StationaryPoints:
    """Parameters, (L, ...), that should be stationary, without a search."""
    return find_stationary_points(objective_of(system, tasks), members, n_iterations=0)


def searched(system: System, n_solves: int, sigma: float) -> tuple[StationaryPoints, State]:
    """From random starts N(0, sigma^2), each with a random task. Returns the points and the tasks."""
    streams = Streams(torch.arange(n_solves))
    system = system.double()
    start, tasks = (
        {name: streams.normal(name, tuple(value.shape)) for name, value in named}
        for named in (system.named_parameters(), system.named_buffers())
    )
    start = {name: sigma * value for name, value in start.items()}
    return find_stationary_points(objective_of(system, tasks), start), tasks


def family_error(found: StationaryPoints, level: Tensor | float, index: int, n_predicted: int) -> float:
    """How far points are from their family's loss per predicted position (`level`), gradient 0 and Hessian `index`."""
    return largest_error(found.losses / n_predicted - level, found.gradient_norm, (found.index - index).double())


def distance_to_levels(level: Tensor | float, known: Mapping[str, Tensor | float]) -> float:
    """The largest distance of a loss from its nearest level."""
    levels = torch.as_tensor(level, dtype=torch.float64)
    distances = [(levels - known_level).abs() for known_level in known.values()]
    return torch.stack(distances).amin(0).max().item()
