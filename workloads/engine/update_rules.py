"""The optimizer of a pack, by the parameter `optimizer`."""

from attnsweep.workloads.engine.contract import Lanes, P
from attnsweep.workloads.engine.first_order import Adam, AdamW, Sgd
from attnsweep.workloads.engine.lbfgs import Lbfgs
from attnsweep.workloads.engine.optimizers import Optimizer, Settings

UPDATE_RULES: dict[str, type[Optimizer]] = {"sgd": Sgd, "adam": Adam, "adamw": AdamW, "lbfgs": Lbfgs}


def optimizer_of(lanes: Lanes[P]) -> Optimizer:
    """The optimizer that the lanes' parameters name."""
    shared = lanes.shared
    settings = Settings(
        learning_rate=lanes.tensor("learning_rate"),
        momentum=lanes.tensor("momentum"),
        weight_decay=lanes.tensor("weight_decay"),
        warmup_steps=lanes.tensor("warmup_steps"),
        gradient_clip_norm=lanes.tensor("gradient_clip_norm"),
        learning_rate_schedule=shared.learning_rate_schedule,
        n_steps=shared.n_steps,
    )
    return UPDATE_RULES[shared.optimizer](settings)
