"""Training in bfloat16: what is computed in it, and what is not.

The training loss and its gradient are computed in bfloat16. Parameters and averages are kept in it too, or in float32
(`float32_state`); an update of first order is computed in float32 and rounded once. Probes measure in float32.
"""

import torch

from attnsweep.workloads.engine.contract import Lanes, P
from attnsweep.workloads.engine.optimizers import State


def is_rounded(lanes: Lanes[P]) -> bool:
    """Whether the loss of these trainings is computed in bfloat16."""
    return lanes.loss_dtype == torch.bfloat16


def measurable(state: State) -> State:
    """The tensors as probes measure them and checkpoints hold them: those of bfloat16 in float32, exactly."""
    return {name: value.float() if value.dtype == torch.bfloat16 else value for name, value in state.items()}


def in_type(state: State, dtype: torch.dtype) -> State:
    """The tensors with their real numbers in this type."""
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in state.items()}
