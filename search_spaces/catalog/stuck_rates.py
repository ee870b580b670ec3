"""Stuck rates of both reduced systems, by initialization, step size, optimizer and softmax."""

from attnsweep.search_spaces import Categorical, Conditional, Float, Sweep


def sweep() -> Sweep:
    """Trains systems P and C on their exact population loss: 250 trials x 16 replicates."""
    return Sweep(
        name="stuck_rates",
        description="systems P and C: stuck rates by init_sigma, learning_rate, optimizer, softmax",
        workload="category_pairs",
        space={
            "variant": Categorical(choices=("positions_only", "categories_only")),
            "attention_activation": Conditional(
                on="variant",
                among=("positions_only",),
                then=Categorical(choices=("identity", "softmax")),
            ),
            "optimizer": Categorical(choices=("sgd", "adam")),
            "n_steps": 4000,
            "init_sigma": Float(low=1e-4, high=3.0, log=True),
            "learning_rate": Float(low=1e-3, high=1e-1, log=True),
        },
        sampler="random",
        trials=250,
        replicates=16,
    )
