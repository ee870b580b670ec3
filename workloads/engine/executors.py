"""What takes a pack's steps: a compiled program, a captured one, or else PyTorch operation by operation."""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.lane_state import Batches, LaneState
from attnsweep.workloads.engine.optimizers import State


class NoRuleError(Exception):
    """A step cannot be compiled. The message says why."""


class NoCompilerError(Exception):
    """This machine cannot compile, store or run a program. The message says why."""


class Steps(Protocol):
    def advance(self, lanes: LaneState, batches: Batches, until: int) -> None:
        """Takes steps until step `until`, or until a batch has another shape."""


class Gradients(Protocol):
    def loss_and_gradient(
        self, rows: Tensor, buffers: State, batch: Batch, lanes: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Losses and gradients, one row per training; `lanes` (int64) are the rows' places in buffers and batch."""


class Measures(Protocol):
    def measured(self, rows: Tensor, buffers: State, batch: Batch, trained_on: Batch | None) -> tuple[State, Tensor]:
        """Loss on `trained_on`, held-out loss and metrics by name; and the held-out loss's gradient, a row each."""


Examine = Callable[[State, State, Batch], tuple[Tensor, State]]
"""The held-out loss and the metrics of one training, from parameters, buffers and batch."""


class Executors(Protocol):
    """Those of a workload, one for each set of static parameters and shape of batches; `None` where only PyTorch can.

    `of` takes steps, `gradient_of` computes loss and gradient in a line search, `measures_of` measures at probes.
    """

    def of(self, lanes: LaneState, batch: Batch) -> Steps | None: ...

    def gradient_of(self, lanes: LaneState, batch: Batch) -> Gradients | None: ...

    def measures_of(
        self, lanes: LaneState, batch: Batch, trained_on: Batch | None, examine: Examine
    ) -> Measures | None: ...
