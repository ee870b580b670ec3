"""The question of `mission` for category pairs, which have no window: full models, in both floating-point types."""

from attnsweep.search_spaces import Categorical, Float, Sweep


def sweep() -> Sweep:
    """Trains solutions 1 and 3 with 250 iterations of L-BFGS on 256 texts: 256 trials x 4 replicates."""
    return Sweep(
        name="mission_pairs",
        description="full models: init_sigma, layer_norm_eps, attention_scale and dtype at once",
        workload="category_pairs",
        space={
            "variant": Categorical(choices=("solution_1", "solution_3")),
            "init_sigma": Float(low=1e-4, high=1.0, log=True),
            "layer_norm_eps": Float(low=1e-7, high=1e-1, log=True),
            "attention_scale": Categorical(choices=("one", "inv_sqrt_d", "log_n_inv_sqrt_d", "learned")),
            "dtype": Categorical(choices=("float32", "float64")),
            "expectation": "fixed_sample",
            "batch_size": 256,
            "optimizer": "lbfgs",
            "learning_rate": 1.0,
            "n_steps": 250,
        },
        sampler="random",
        trials=256,
        replicates=4,
    )
