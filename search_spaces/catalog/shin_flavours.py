"""The combined model in its four flavours (Shin & Matzinger 2025, section 4.1, Figures 2 and 3)."""

from attnsweep.search_spaces import Categorical, LossQuantile, Sweep


def sweep() -> Sweep:
    """Trains 4 flavours x 20 seeds with N = 10, M = 20 and 500 texts in minutes. The paper's M = 50 and 1,000 texts
    take hours.

    The paper has "50 iterations", which we take as calls of PyTorch's L-BFGS of up to 20 iterations each. After 50
    single iterations hardly a flavour has left E[Y | X_i], at either size. Ours are 500 iterations, that is, 25 calls.
    """
    return Sweep(
        name="shin_flavours",
        description="the combined model in four flavours: losses, and what the blocks hold",
        workload="category_pairs",
        space={
            "variant": "combined",
            "flavour": Categorical(choices=("unconstrained", "lean_1", "lean_2", "lean_3")),
            "init_sigma": None,
            "expectation": "fixed_sample",
            "batch_size": 500,
            "n_categories": 10,
            "n_positions": 20,
            "optimizer": "lbfgs",
            "learning_rate": 1.0,
            "n_steps": 500,
            "dtype": "float32",
            # Solved trainings continue to the last iteration, because the figure shows their whole curves.
            "stop_when_solved": False,
        },
        sampler="grid",
        objective=LossQuantile(quantile=0.5),
        trials=4,
        replicates=20,
    )
