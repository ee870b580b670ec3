"""Which tasks does a transformer of one block or two learn in 500 steps, at two lengths?"""

from attnsweep.search_spaces import Categorical, Rate, Sweep


def sweep() -> Sweep:
    """Trains transformers on 4 tasks x 2 depths x 2 sequence lengths x 16 seeds."""
    return Sweep(
        name="sequence_tasks",
        description="majority, brackets, sorting and recall, by depth and length",
        workload="sequence_tasks",
        space={
            "task": Categorical(("majority", "brackets", "sort", "recall")),
            "n_blocks": Categorical((1, 2)),
            "length": Categorical((4, 8)),
        },
        sampler="grid",
        objective=Rate("solved"),
        trials=16,
        replicates=16,
    )
