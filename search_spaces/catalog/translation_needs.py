"""What do the heads of translators need? The same seeds with and without clamped heads and frozen parameters."""

from attnsweep.search_spaces import Categorical, Sweep


def sweep() -> Sweep:
    """8 interventions x 32 paired seeds of one-block translators with two heads a layer."""
    return Sweep(
        name="translation_needs",
        description="translators with and without interventions, on the same seeds: what do their heads need?",
        workload="translation",
        space={
            "d_model": 32,
            "d_ffn": 64,
            "n_heads": 2,
            "n_epochs": 4,
            "learning_rate": 5e-3,
            "probe_every": 50,
            "head_sentences": 200,
            "test_sentences": 0,
            "intervention": Categorical(
                choices=(
                    None,
                    "clamp 0:0 previous_token 0..; clamp 0:1 next_token 0..",
                )
            ),
        },
        sampler="grid",
        trials=2,
        replicates=32,
    )
