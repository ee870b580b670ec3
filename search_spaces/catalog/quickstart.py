"""The first sweep to run: when does attention on positions stay stuck at the zero it starts from?"""

from attnsweep.search_spaces import Float, Sweep


def sweep() -> Sweep:
    """Trains system P over init_sigma and learning_rate: 128 trials x 8 replicates, some 20 s on two cores."""
    return Sweep(
        name="quickstart",
        description="attention on positions only: where do trainings end, by init_sigma and learning_rate?",
        workload="category_pairs",
        space={
            "variant": "positions_only",
            "n_categories": 10,
            "n_positions": 20,
            "n_steps": 3000,
            "init_sigma": Float(low=1e-4, high=3.0, log=True),
            "learning_rate": Float(low=1e-4, high=5e-2, log=True),
        },
        sampler="qmc",
        trials=128,
        replicates=8,
    )
