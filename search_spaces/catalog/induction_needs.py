"""What do induction heads need? Trains the same seeds with and without clamped heads, frozen parameters and a kick."""

from attnsweep.search_spaces import Categorical, Sweep


def sweep() -> Sweep:
    """Trains two-block GPTs, one head per block, on repeated random segments: 6 interventions x the same 64 seeds."""
    return Sweep(
        name="induction_needs",
        description="two-block GPTs with and without interventions, on the same seeds: what do induction heads need?",
        workload="gpt",
        space={
            "task": "induction",
            "n_words": 16,
            "n_tokens": 16,
            "n_blocks": 2,
            "d_model": 16,
            "d_ffn": 32,
            "init_sigma": None,
            "batch_size": 16,
            "eval_batch_size": 32,
            "learning_rate": 1e-2,
            "n_steps": 500,
            "probe_every": 20,
            "stop_when_solved": False,
            "intervention": Categorical(
                choices=(
                    None,
                    "clamp 0:0 previous_token 0..",
                    "clamp 0:0 none 0..",
                    "clamp 0:0 none 0..200",
                    "freeze blocks.1.attention.query 0..",
                    "kick 0.3 at 100",
                )
            ),
        },
        sampler="grid",
        trials=6,
        replicates=64,
    )
