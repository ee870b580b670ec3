"""The combined model in its four flavours, as Shin & Matzinger 2025 train it (section 4.1, Figures 2 and 3)."""

from search_spaces import Categorical, LossQuantile, Sweep


def sweep() -> Sweep:
    """4 flavours x 20 seeds at N = 10, M = 50 on 1,000 texts.

    The paper has "50 iterations": a call of PyTorch's L-BFGS is up to 20. After 50 single ones no flavour has left
    E[Y | X_i]; 300 are 15 calls.
    """
    return Sweep(
        name="shin_flavours",
        description="the combined model in four flavours at the published size: 80 trainings, 20 minutes on 2 cores",
        workload="category_pairs",
        space={
            "variant": "combined",
            "flavour": Categorical(choices=("unconstrained", "lean_1", "lean_2", "lean_3")),
            "init_sigma": None,
            "expectation": "fixed_sample",
            "batch_size": 1000,
            "n_categories": 10,
            "n_positions": 50,
            "optimizer": "lbfgs",
            "learning_rate": 1.0,
            "n_steps": 300,
            "dtype": "float32",
            # The figure is the curve to its end.
            "stop_when_solved": False,
        },
        sampler="grid",
        objective=LossQuantile(quantile=0.5),
        trials=4,
        replicates=20,
    )
