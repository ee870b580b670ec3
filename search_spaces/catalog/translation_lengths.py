"""How do translators trained on short sentences translate long ones, with and without log-length scaling?

Source: Chiang & Cholak 2022, table 1.
"""

from attnsweep.search_spaces import Categorical, Sweep


def sweep() -> Sweep:
    """Trains on all sentences or the short half, with logits scaled by log n or not: 4 trials x 20 replicates."""
    return Sweep(
        name="translation_lengths",
        description="translators, trained on all sentences or on the short: cross-entropy and BLEU on the long.",
        workload="translation",
        space={
            "train_on": Categorical(choices=("all", "short")),
            "attention_scale": Categorical(choices=("inv_sqrt_d", "log_n_inv_sqrt_d")),
            "n_epochs": 5,
            "learning_rate": 2e-3,
            "n_probes": 4,
            "eval_sentences": 256,
            "test_sentences": 500,
        },
        sampler="grid",
        trials=4,
        replicates=20,
    )
