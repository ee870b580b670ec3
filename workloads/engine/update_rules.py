"""The optimizer of a pack, by the parameter `optimizer`."""

from functools import partial

import torch

from attnsweep.workloads.engine.contract import Lanes, P
from attnsweep.workloads.engine.first_order import Adam, AdamW, Sgd
from attnsweep.workloads.engine.lbfgs import Lbfgs
from attnsweep.workloads.engine.optimizers import Optimizer, Settings
from attnsweep.workloads.parameters import OPTIMIZERS

UPDATE_RULES: dict[str, type[Optimizer]] = dict(zip(OPTIMIZERS, (Sgd, Adam, AdamW, Lbfgs), strict=True))


def optimizer_of(lanes: Lanes[P]) -> Optimizer:
    """The optimizer that the lanes' parameters name."""
    shared = lanes.shared
    # As in PyTorch: an update is computed in float32, and its result is rounded to bfloat16.
    rounds = lanes.dtype == torch.bfloat16 and shared.optimizer != "lbfgs"
    of = partial(lanes.tensor, dtype=torch.float32 if rounds else None)
    settings = Settings(
        learning_rate=of("learning_rate"),
        momentum=of("momentum"),
        weight_decay=of("weight_decay"),
        warmup_steps=of("warmup_steps"),
        gradient_clip_norm=of("gradient_clip_norm"),
        learning_rate_schedule=shared.learning_rate_schedule,
        n_steps=shared.n_steps,
    )
    return UPDATE_RULES[shared.optimizer](settings)
