"""Do translators get positional heads if they are larger, train longer, have more heads, or dropout?

Source: Voita et al. 2019, section 5.1; Conti 2024. `head_roles` has none among 512.
"""

from attnsweep.search_spaces import Categorical, Sweep


def sweep() -> Sweep:
    """Trains translators, 32 trials x 16 replicates, over width, heads, passes (6 or 48), learning rate and dropout."""
    return Sweep(
        name="positional_heads",
        description="translators: do larger ones, those trained for longer, or with dropout get positional heads?",
        workload="translation",
        space={
            "d_model": Categorical(choices=(64, 128)),
            "n_heads": Categorical(choices=(4, 8)),
            "n_epochs": Categorical(choices=(6, 48)),
            "learning_rate": Categorical(choices=(1e-3, 3e-3)),
            "dropout": Categorical(choices=(0.0, 0.1)),
            "n_probes": 8,
            "test_sentences": 0,
        },
        sampler="grid",
        trials=32,
        replicates=16,
    )
