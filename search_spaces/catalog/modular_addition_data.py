"""How much longer does it take to learn to add from fewer pairs?"""

from attnsweep.search_spaces import Categorical, Sweep
from attnsweep.search_spaces.catalog import modular_addition


def sweep() -> Sweep:
    """Repeats the sweep `modular_addition` at weight decay 1 with 3 shares of training pairs x 64 replicates."""
    space = {
        **modular_addition.sweep().space,
        "weight_decay": 1.0,
        "train_fraction": Categorical(choices=(0.6, 0.7, 0.8)),
    }
    return Sweep(
        name="modular_addition_data",
        description="transformers add modulo 23: how long it takes, by the share of pairs trained on",
        workload="modular_addition",
        space=space,
        sampler="grid",
        trials=3,
        replicates=64,
    )
