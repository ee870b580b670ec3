"""The dtypes of trainings in bfloat16.

The training loss and its gradient are computed in bfloat16. Parameters and running averages are stored in bfloat16, or
in float32 with `float32_state`. First-order updates are computed in float32 and rounded once. Probes use float32.
"""

import torch

from attnsweep.workloads.engine.contract import Lanes, P
from attnsweep.workloads.engine.optimizers import State


def is_rounded(lanes: Lanes[P]) -> bool:
    """Returns whether the loss of these trainings is computed in bfloat16."""
    return lanes.loss_dtype == torch.bfloat16


def measurable(state: State) -> State:
    """Converts bfloat16 tensors to float32 for probes and checkpoints, which is exact; keeps all others."""
    return {name: value.float() if value.dtype == torch.bfloat16 else value for name, value in state.items()}


def in_type(state: State, dtype: torch.dtype) -> State:
    """Converts floating-point tensors to `dtype`; keeps all other tensors."""
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in state.items()}
