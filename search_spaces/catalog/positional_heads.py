"""Do translators get positional heads if they are larger, train longer, or have more heads?

Source: Voita et al. 2019, section 5.1; Conti 2024. `head_roles` has none among 512.
"""

from attnsweep.search_spaces import Categorical, Sweep


def sweep() -> Sweep:
    """16 trials x 16 replicates: width 64 or 128, 4 or 8 heads, 6 or 48 passes over 5,000 sentences, two rates."""
    return Sweep(
        name="positional_heads",
        description="256 translators: do larger ones, or those trained for longer, get positional heads?",
        workload="translation",
        space={
            "d_model": Categorical(choices=(64, 128)),
            "n_heads": Categorical(choices=(4, 8)),
            "n_epochs": Categorical(choices=(6, 48)),
            "learning_rate": Categorical(choices=(1e-3, 3e-3)),
            "n_probes": 8,
            "test_sentences": 0,
        },
        sampler="grid",
        trials=16,
        replicates=16,
    )
