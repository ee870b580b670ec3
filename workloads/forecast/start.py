"""Where trainings start, in float64: their weights, the gradient of their first loss, and what of them scales.

Axes: L lane, n place in a row of all weights.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from attnsweep.workloads.engine.contract import Lanes, Training, Workload
from attnsweep.workloads.engine.functional import over_lanes
from attnsweep.workloads.engine.layout import Layout
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.precision import in_type
from attnsweep.workloads.engine.starting_state import starting_state

RATIO = 3.0
"""Of two values of init_sigma at which one draw is compared."""
_ROUNDING = 1e-12
"""The relative difference within which two draws are the same draw."""


class NotAScaleFamilyError(Exception):
    """The starts at two values of init_sigma are not one normal draw at two scales; says why."""


def in_float64(training: Training[Any], **changed: Any) -> Training[Any]:
    """The same training in float64, with some parameters changed."""
    return replace(training, parameters=replace(training.parameters, dtype="float64", float32_state=False, **changed))


class Start:
    """The start of L trainings, and their first loss anywhere near it.

    Args:
        workload: The problem.
        trainings: One per lane, of one shape, in float64.
        buffers: Theirs (L, ...) by name, among other state, where they are known; otherwise those that the workload
            draws.

    Attributes:
        weights: (L, ...) by name.
        is_exact: Whether the second step has the loss of the first one.
    """

    def __init__(
        self, workload: Workload[Any], trainings: Sequence[Training[Any]], buffers: State | None = None
    ) -> None:
        lanes = Lanes(trainings, torch.device("cpu"))
        self.weights, drawn, template = starting_state(workload, lanes)
        # A state that has ended has weights too, which are no start.
        self._buffers = drawn | {
            name: each.to(lanes.device) for name, each in in_type(buffers or {}, lanes.dtype).items() if name in drawn
        }
        self._loss = over_lanes(template, workload.loss)
        self._layout = Layout(self.weights)
        (self._batch, *_) = workload.batches(lanes, range(1))
        (second, *_) = workload.batches(lanes, range(1, 2))
        self.is_exact = all(torch.equal(value, second[name]) for name, value in self._batch.items())

    def moved_to(self, weights: State) -> Self:
        """The same trainings and their first loss, with other weights (L, ...) by name."""
        moved = copy(self)
        moved.weights = {name: weights[name].to(value) for name, value in self.weights.items()}
        return moved

    @property
    def rows(self) -> Tensor:
        """(L, n) all weights."""
        return self._layout.rows(self.weights)

    def scaled(self, names: Sequence[str], factor: float) -> Tensor:
        """(L, n) all weights, of which these are multiplied."""
        return self._layout.rows(self.weights | {name: factor * self.weights[name] for name in names})

    def descent(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The losses (L,) at some weights (L, n), and their gradients (L, n)."""
        leaf = rows.detach().requires_grad_()
        loss = self._loss(self._layout.views(leaf), self._buffers, self._batch)
        (gradient,) = torch.autograd.grad(loss.sum(), leaf, materialize_grads=True)
        return loss.detach(), gradient

    def gradients(self) -> State:
        """The gradients (L, ...) by name, at the start."""
        return self._layout.views(self.descent(self.rows)[1])


def scale_with_sigma(large: State, small: State) -> list[str]:
    """The names of the weights that start in proportion to init_sigma; the others start the same at each.

    Args:
        large, small: (L, ...) by name: the start at one value of init_sigma, and at a third of it.

    Raises:
        NotAScaleFamilyError: If a weight does neither, or none is in proportion.
    """
    found = []
    for name, value in large.items():
        if torch.equal(value, small[name]):
            continue
        if not torch.allclose(value, RATIO * small[name], rtol=_ROUNDING, atol=0.0):
            raise NotAScaleFamilyError(f"{name} does not start in proportion to init_sigma")
        found.append(name)
    if not found:
        raise NotAScaleFamilyError("no parameter starts in proportion to init_sigma")
    return found
