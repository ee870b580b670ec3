"""Verdicts on printed equations: whether an equation holds follows from the errors of its printed and of its right
form.

Shared by the checks of system P (`equations_of_positions`) and C (`equations_of_categories`). Axes: L member of a
family or lane of a search, T text, M position.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from attnsweep.reproduction.shin.stationary import StationaryPoints, find_stationary_points
from attnsweep.workloads.category_pairs.categories_only import CategoriesOnly
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly
from attnsweep.workloads.diagnostics.objective import Objective
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.streams import Streams

System = PositionsOnly | CategoriesOnly
Verdict = Literal["holds", "misprinted", "needs an assumption", "missed", "ours holds", "refuted"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EquationCheck:
    """The result of the numerical check of one equation.

    Attributes:
        equation: The equation's numbers in the paper, or the section it belongs to.
        subject: The subject of the equation, in two or three words.
        statement: The right form, in words and symbols.
        flaw: How the right form differs from the printed one: other symbols, a restriction, something added.
        printed_error: The largest error of the printed form; `None` if the paper's text is not available.
        right_error: The largest error of the right form.
        tolerance: The largest error that rounding explains.
    """

    equation: str
    subject: str
    statement: str
    flaw: Literal["misprinted", "needs an assumption", "missed"] = "misprinted"
    printed_error: float | None
    right_error: float
    tolerance: float = 1e-9

    @property
    def verdict(self) -> Verdict:
        """The verdict on the equation: `holds` if the printed form does; if only the corrected form holds, the flaw;
        else `refuted`.
        """
        if self.printed_error is not None and self.printed_error <= self.tolerance:
            return "holds"
        # The condition is `not ... <=` instead of `>`, because NaN must refute the equation.
        if not self.right_error <= self.tolerance:
            return "refuted"
        return "ours holds" if self.printed_error is None else self.flaw


def largest_error(*differences: Tensor | float) -> float:
    """Returns the largest absolute value of an entry; NaN if any entry is NaN."""
    flat = [torch.as_tensor(difference, dtype=torch.float64).abs().flatten() for difference in differences]
    return torch.cat(flat).max().item()


def every_text(n_categories: int, n_positions: int) -> Tensor:
    """Returns all texts of M tokens, (T, M)."""
    return torch.tensor(list(itertools.product(range(n_categories), repeat=n_positions)))


def generator(seed: int) -> torch.Generator:
    """Returns the random generator of a check's parameters, seeded with the same value in every run."""
    return torch.Generator().manual_seed(seed)


def objective_of(system: System, tasks: State | None = None) -> Objective:
    """Returns the population loss as a function of the parameters, summed over predicted positions.

    Args:
        system: System P or C.
        tasks: Buffers (L, ...) that differ between lanes, such as targets.
    """

    def loss(module: nn.Module, _: Batch) -> Tensor:
        return cast(System, module).population_loss()

    return Objective(system.double(), loss, tasks or {}, {})


def examined(system: System, members: State, tasks: State | None = None) -> StationaryPoints:
    """Evaluates loss, gradient and Hessian index at members (L, ...) of a family, without optimizing them."""
    return find_stationary_points(objective_of(system, tasks), members, n_iterations=0)


def searched(system: System, n_solves: int, sigma: float) -> tuple[StationaryPoints, State]:
    """Searches for stationary points from random starts N(0, sigma^2) with random tasks. Returns points and tasks."""
    streams = Streams(torch.arange(n_solves))
    system = system.double()
    start, tasks = (
        {name: streams.normal(name, tuple(value.shape)) for name, value in named}
        for named in (system.named_parameters(), system.named_buffers())
    )
    start = {name: sigma * value for name, value in start.items()}
    return find_stationary_points(objective_of(system, tasks), start), tasks


def family_error(found: StationaryPoints, level: Tensor | float, index: int, n_predicted: int) -> float:
    """Returns the largest error of the claim that the points are stationary, with the given loss and Hessian index.

    Args:
        found: The points.
        level: The claimed loss per predicted position.
        index: The claimed Hessian index.
        n_predicted: The number of predicted positions.
    """
    return largest_error(found.losses / n_predicted - level, found.gradient_norm, (found.index - index).double())


def distance_to_levels(level: Tensor | float, known: Mapping[str, Tensor | float]) -> float:
    """Returns the largest distance of a loss from the nearest known level."""
    levels = torch.as_tensor(level, dtype=torch.float64)
    distances = [(levels - known_level).abs() for known_level in known.values()]
    return torch.stack(distances).amin(0).max().item()
