"""The optimizer of a pack, by the parameter `optimizer`."""

import torch

from attnsweep.workloads.engine.contract import Lanes, P
from attnsweep.workloads.engine.first_order import FirstOrder
from attnsweep.workloads.engine.lbfgs import Lbfgs
from attnsweep.workloads.engine.optimizers import Optimizer, Settings
from attnsweep.workloads.update_rules import UPDATE_RULES


def optimizer_of(lanes: Lanes[P]) -> Optimizer:
    """The optimizer that the lanes' parameters name."""
    shared = lanes.shared
    # As in PyTorch: an update is computed in float32, and its result is rounded to bfloat16.
    rounds = lanes.dtype == torch.bfloat16 and shared.optimizer in UPDATE_RULES
    of_lanes = [training.parameters for training in lanes.trainings]
    dtype = torch.float32 if rounds else lanes.dtype
    return optimizer_named(shared.optimizer, Settings(of_lanes, shared.n_steps, dtype, lanes.device))


def optimizer_named(name: str, settings: Settings) -> Optimizer:
    """The optimizer of this name, before its first step."""
    return FirstOrder(UPDATE_RULES[name], settings) if name in UPDATE_RULES else Lbfgs(settings)
