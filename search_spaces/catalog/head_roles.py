"""Which attention heads take which role, when, and under which hyperparameters?"""

from attnsweep.search_spaces import Categorical, Float, Sweep


def sweep() -> Sweep:
    """Trains one-block translators with 1 to 8 heads in 6 passes over 5,000 sentences: 128 trials x 4 replicates."""
    return Sweep(
        name="head_roles",
        description="translators of a synthetic grammar: do their heads become positional, syntactic, rare-token?",
        workload="translation",
        space={
            "n_heads": Categorical(choices=(1, 2, 4, 8)),
            "layer_norm_convention": Categorical(choices=("inside_root", "outside_root")),
            "layer_norm_eps": Float(low=1e-6, high=1.0, log=True),
            "init_sigma": Categorical(choices=(None, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1)),
            "attention_scale": Categorical(choices=("inv_sqrt_d", "one", "log_n_inv_sqrt_d")),
            "learning_rate": Float(low=3e-4, high=1e-2, log=True),
            "n_epochs": 6,
            "n_probes": 8,
        },
        sampler="random",
        trials=128,
        replicates=4,
    )
