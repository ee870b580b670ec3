"""Where do the full models get stuck? Solutions 1 to 3 and the combined model, by initialization and LayerNorm."""

from attnsweep.search_spaces import Categorical, Conditional, Float, Sweep


def sweep() -> Sweep:
    """Trains full models, N = 10, M = 20, with 250 iterations of L-BFGS on 256 texts: 512 trials x 4 replicates."""
    return Sweep(
        name="stuck_full",
        description="full models: stuck rates by init_sigma, layer_norm_eps, attention_scale, softmax and skip",
        workload="category_pairs",
        space={
            "variant": Categorical(choices=("solution_1", "solution_2", "solution_3", "combined")),
            "flavour": Conditional(
                on="variant",
                among=("combined",),
                then=Categorical(choices=("unconstrained", "lean_1", "lean_2", "lean_3")),
            ),
            "init_sigma": Categorical(choices=(None, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)),
            "layer_norm_eps": Float(low=1e-7, high=1e-1, log=True),
            "attention_scale": Categorical(choices=("one", "inv_sqrt_d", "log_n_inv_sqrt_d", "learned")),
            "attention_activation": Categorical(choices=("identity", "softmax")),
            "skip": Categorical(choices=(True, False)),
            "expectation": "fixed_sample",
            "batch_size": 256,
            "n_categories": 10,
            "n_positions": 20,
            "optimizer": "lbfgs",
            "learning_rate": 1.0,
            "n_steps": 250,
            # The paper uses float32, PyTorch's default. float32 takes half the time of float64 and affects outcomes:
            # docs/zeros.md.
            "dtype": "float32",
        },
        sampler="random",
        trials=512,
        replicates=4,
    )
