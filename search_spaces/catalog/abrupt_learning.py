"""How long is the plateau of the moving-window sum if answers attend better, or worse, to what they need?

Source: Gopalani & Hu 2025, Figures 3 and 4. The sizes are reduced; the workload's defaults say from what.
"""

from attnsweep.search_spaces import Categorical, Rate, Sweep


def sweep() -> Sweep:
    """Varies how strongly attention is biased to the tokens that an answer needs: 5 factors x 64 seeds."""
    return Sweep(
        name="abrupt_learning",
        description="how long the plateau of a moving-window sum lasts, by the bias of its attention",
        workload="abrupt_learning",
        space={"optimal_scale": Categorical((0.2, 0.5, 1.0, 2.5, 10.0))},
        sampler="grid",
        objective=Rate("solved"),
        trials=5,
        replicates=64,
    )
