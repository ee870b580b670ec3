"""Which tasks keep a model on the plateau for how long?

Source: Gopalani & Hu 2025, whose trainings of each task take 100 (reverse, copy), 400 (moving-window sum) and 1,000
steps (prefix sum). The sizes are reduced.
"""

from attnsweep.search_spaces import Categorical, Rate, Sweep


def sweep() -> Sweep:
    """Trains the same model on 4 tasks x 64 seeds."""
    return Sweep(
        name="abrupt_learning_tasks",
        description="how long the plateau of copies, reversals, moving-window and prefix sums lasts",
        workload="abrupt_learning",
        space={"task": Categorical(("reverse", "copy", "window_sum", "prefix_sum"))},
        sampler="grid",
        objective=Rate("solved"),
        trials=4,
        replicates=64,
    )
