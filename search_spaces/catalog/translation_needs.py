"""What do translators' heads need? Trains the same seeds with and without clamped, frozen and scaled attention."""

from attnsweep.search_spaces import Categorical, Sweep


def sweep() -> Sweep:
    """Trains one-block translators with two heads per layer: 7 interventions x the same 16 seeds."""
    return Sweep(
        name="translation_needs",
        description="translators with and without interventions, on the same seeds: what do their heads need?",
        workload="translation",
        space={
            "d_model": 32,
            "d_ffn": 64,
            "n_heads": 2,
            "batch_size": 8,
            "n_steps": 800,
            "learning_rate": 8e-3,
            "probe_every": 50,
            "head_sentences": 128,
            "test_sentences": 0,
            "intervention": Categorical(
                choices=(
                    None,
                    "clamp 0:0 uniform 0..; clamp 0:1 uniform 0..",
                    "clamp 0:0 previous_token 0..; clamp 0:1 next_token 0..",
                    "clamp 1:0 previous_token 0..",
                    "clamp 2:0 uniform 0..; clamp 2:1 uniform 0..",
                    "freeze decoder_self.query_weight_DD 0..",
                    "scale attention 3 0..200",
                )
            ),
        },
        sampler="grid",
        trials=7,
        replicates=16,
    )
