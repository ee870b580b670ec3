"""Makes the optimizer of a pack from the parameter `optimizer`."""

import torch

from attnsweep.workloads.engine.contract import Lanes, P
from attnsweep.workloads.engine.first_order import FirstOrder
from attnsweep.workloads.engine.lbfgs import Lbfgs
from attnsweep.workloads.engine.optimizers import Optimizer, Settings
from attnsweep.workloads.update_rules import UPDATE_RULES


def optimizer_of(lanes: Lanes[P]) -> Optimizer:
    """Makes the optimizer that the lanes' parameters name, with its state in the floating-point type that it needs."""
    shared = lanes.shared
    # PyTorch's optimizers compute updates of bfloat16 parameters in float32 and then round them, so this function
    # requests the same.
    rounds = lanes.dtype == torch.bfloat16 and shared.optimizer in UPDATE_RULES
    parameters = [training.parameters for training in lanes.trainings]
    dtype = torch.float32 if rounds else lanes.dtype
    return optimizer_named(shared.optimizer, Settings(parameters, shared.n_steps, dtype, lanes.device))


def optimizer_named(name: str, settings: Settings) -> Optimizer:
    """Makes the optimizer with this name, in the state before its first step."""
    return FirstOrder(UPDATE_RULES[name], settings) if name in UPDATE_RULES else Lbfgs(settings)
