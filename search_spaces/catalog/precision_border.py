"""Below which initialization does rounding hold a training at the zero, by floating-point type and factors?"""

from attnsweep.search_spaces import Categorical, Float, Sweep


def sweep() -> Sweep:
    """Trains system P with 150 iterations of L-BFGS: 144 trials x 16 replicates, a few minutes on two cores."""
    return Sweep(
        name="precision_border",
        description="the border of the zero in init_sigma, by floating-point type, with two and three factors",
        workload="category_pairs",
        space={
            "init_sigma": Float(low=1e-6, high=1.0, log=True),
            "dtype": Categorical(choices=("bfloat16", "float32", "float64")),
            "qk": Categorical(choices=("merged", "factored")),
            "variant": "positions_only",
            "n_categories": 5,
            "n_positions": 8,
            "optimizer": "lbfgs",
            "learning_rate": 1.0,
            "n_steps": 150,
        },
        sampler="boundary",
        trials=144,
        replicates=16,
        certified_share=0.1,
    )
