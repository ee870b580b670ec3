"""Initialization, LayerNorm's epsilon, attention's scale, window and rare columns at once: who gets stuck, which roles?

TPE draws the trials, looking for the lowest stuck rate.
"""

from attnsweep.search_spaces import Categorical, Float, Sweep


def sweep() -> Sweep:
    """Trains one-block translators in 2 passes over 5,000 sentences: 256 trials x 4 replicates."""
    return Sweep(
        name="mission",
        description="translators: init_sigma, layer_norm_eps, attention_scale, window, num_pos at once, by TPE",
        workload="translation",
        space={
            "init_sigma": Float(low=1e-3, high=1.0, log=True),
            "layer_norm_eps": Float(low=1e-6, high=1.0, log=True),
            "attention_scale": Categorical(choices=("inv_sqrt_d", "one", "log_n_inv_sqrt_d")),
            "window": Categorical(choices=(0, 1, 2, 4, None)),
            "num_pos": Categorical(choices=(0, 1, 2, 4)),
            "n_epochs": 2,
            "head_sentences": 200,
            "test_sentences": 0,
        },
        sampler="tpe",
        trials=256,
        replicates=4,
    )
