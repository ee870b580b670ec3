"""Which initialization, betas, attention scale and epsilon let a transformer learn to add?"""

from attnsweep.search_spaces import Categorical, Conditional, Float, Sweep
from attnsweep.search_spaces.catalog import modular_addition


def sweep() -> Sweep:
    """Samples 32 starting points x 4 replicates for the model of `modular_addition`, at weight decay 1."""
    space = {
        **modular_addition.sweep().space,
        "weight_decay": 1.0,
        "init_sigma": Float(low=0.02, high=1.0, log=True),
        "beta_2": Categorical(choices=(0.98, 0.999)),
        "attention_scale": Float(low=0.1, high=10.0, log=True),
        "norm": Categorical(choices=("none", "pre")),
        "layer_norm_eps": Conditional(on="norm", among=("pre",), then=Float(low=1e-6, high=10.0, log=True)),
    }
    return Sweep(
        name="modular_addition_starts",
        description="transformers add modulo 23, by initialization, betas, attention scale and LayerNorm",
        workload="modular_addition",
        space=space,
        sampler="qmc",
        trials=32,
        replicates=4,
    )
