"""How much longer does it take to learn to add from fewer pairs?"""

from attnsweep.search_spaces import Categorical, Sweep
from attnsweep.search_spaces.catalog import modular_addition


def sweep() -> Sweep:
    """2 shares of the pairs x 64 replicates of the sweep `modular_addition`, at weight decay 1 and for 2,000 steps."""
    space = {
        **modular_addition.sweep().space,
        "weight_decay": 1.0,
        "train_fraction": Categorical(choices=(0.6, 0.8)),
        "n_steps": 2000,
    }
    return Sweep(
        name="modular_addition_data",
        description="128 transformers add modulo 23: how long it takes, by the share of pairs trained on",
        workload="modular_addition",
        space=space,
        sampler="grid",
        trials=2,
        replicates=64,
    )
