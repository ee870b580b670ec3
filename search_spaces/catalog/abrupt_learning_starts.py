"""How does the length of the plateau of the moving-window sum depend on the initialization's standard deviation?"""

from attnsweep.search_spaces import Categorical, Rate, Sweep


def sweep() -> Sweep:
    """Varies init_sigma: 4 values x 64 seeds. At 0.02 sqrt(256 / 24) = 0.065 the attention logits are as large as the
    source's.
    """
    return Sweep(
        name="abrupt_learning_starts",
        description="how long the plateau of a moving-window sum lasts, by the initialization",
        workload="abrupt_learning",
        space={"init_sigma": Categorical((0.03, 0.06, 0.12, 0.24))},
        sampler="grid",
        objective=Rate("solved"),
        trials=4,
        replicates=64,
    )
