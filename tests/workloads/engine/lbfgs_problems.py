"""Ten problems of ten parameters each, from easy to hard, and `torch.optim.LBFGS` on a single one to compare with."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

Objective = Callable[[Tensor], Tensor]

N_PARAMETERS = 10


@dataclass(frozen=True)
class Problem:
    """A function to minimize, its starting point, and a learning rate."""

    objective: Objective
    start: Tensor
    learning_rate: float = 1.0


@dataclass
class Trace:
    """The points at which an optimizer evaluated one problem, and where it ended."""

    points: list[Tensor] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    end: Tensor | None = None
    n_steps: int = 0


def _quadratic(x: Tensor, condition: float) -> Tensor:
    return 0.5 * (torch.logspace(0, torch.tensor(condition).log10().item(), N_PARAMETERS, dtype=x.dtype) * x**2).sum()


def _rosenbrock(x: Tensor, steepness: float) -> Tensor:
    return (steepness * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def _net(x: Tensor, frequency: float) -> Tensor:
    """Regression of a sine on a net with three hidden units."""
    at = torch.linspace(-1, 1, 20, dtype=x.dtype)
    hidden = torch.tanh(at[:, None] * x[:3] + x[3:6])
    return ((hidden @ x[6:9] + x[9] - torch.sin(frequency * at)) ** 2).mean()


def steep(x: Tensor) -> Tensor:
    return (torch.exp(3 * x) - x).sum()


def _flat(x: Tensor) -> Tensor:
    return (x**4).sum() + 0.5 * x.sum() ** 2


def _start(seed: int, size: float) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return size * torch.randn(N_PARAMETERS, generator=generator, dtype=torch.float64)


PROBLEMS = [
    Problem(partial(_quadratic, condition=1.0), _start(0, 1.0)),
    Problem(partial(_quadratic, condition=1e2), _start(1, 1.0), learning_rate=0.03),
    Problem(partial(_quadratic, condition=1e5), _start(2, 3.0)),
    Problem(partial(_rosenbrock, steepness=100.0), torch.tensor([-1.2, 1.0] * 5, dtype=torch.float64)),
    Problem(partial(_rosenbrock, steepness=1.0), _start(4, 0.5), learning_rate=7.0),
    Problem(partial(_rosenbrock, steepness=20.0), _start(5, 1.0), learning_rate=0.3),
    Problem(partial(_net, frequency=2.0), _start(7, 0.5)),
    Problem(partial(_net, frequency=6.0), _start(11, 1.5)),
    Problem(steep, _start(8, 2.0), learning_rate=5.0),
    Problem(_flat, _start(9, 2.0)),
]


def run_alone(problem: Problem, n_steps: int) -> Trace:
    """One training by PyTorch's own L-BFGS."""
    x, trace = problem.start.clone().requires_grad_(), Trace()
    optimizer = torch.optim.LBFGS([x], lr=problem.learning_rate, max_iter=n_steps, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = problem.objective(x)
        loss.backward()
        trace.points.append(x.detach().clone())
        trace.losses.append(loss.item())
        return loss

    optimizer.step(closure)
    trace.end = x.detach()
    trace.n_steps = optimizer.state[x]["n_iter"]
    return trace
