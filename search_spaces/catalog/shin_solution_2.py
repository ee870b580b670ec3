"""Solution 2's model, as Shin & Matzinger 2025 train it (section 4.1, Figure 1)."""

from attnsweep.search_spaces import LossQuantile, Sweep


def sweep() -> Sweep:
    """Trains 20 seeds with N = 10, M = 50 and 1,000 texts. `shin_flavours` explains the number of iterations."""
    return Sweep(
        name="shin_solution_2",
        description="solution 2 at the published size",
        workload="category_pairs",
        space={
            "variant": "solution_2",
            "init_sigma": None,
            "expectation": "fixed_sample",
            "batch_size": 1000,
            "n_categories": 10,
            "n_positions": 50,
            "optimizer": "lbfgs",
            "learning_rate": 1.0,
            "n_steps": 300,
            "dtype": "float32",
        },
        sampler="grid",
        objective=LossQuantile(quantile=0.5),
        trials=1,
        replicates=20,
    )
