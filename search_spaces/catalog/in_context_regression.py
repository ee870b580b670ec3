"""Does linear attention learn in-context regression by one drop, by a staircase, or only in part?"""

from attnsweep.search_spaces import Categorical, Sweep


def sweep() -> Sweep:
    """Trains 54 trials x 8 replicates on the exact loss, with the sizes and the learning rate of Zhang et al. 2025."""
    return Sweep(
        name="in_context_regression",
        description="linear attentions learn regression in context: one drop, or a staircase",
        workload="in_context_regression",
        space={
            "kq": Categorical(choices=("merged", "separate")),
            "n_heads": Categorical(choices=(1, 2, 5)),
            "init_sigma": Categorical(choices=(1e-2, 1e-4, 1e-6)),
            "attention_scale": Categorical(choices=(0.5, 1.0, 2.0)),
            "learning_rate": 0.2,
            "n_steps": 10_000,
        },
        sampler="grid",
        trials=54,
        replicates=8,
    )
