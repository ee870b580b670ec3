"""At which initialization, epsilon and width do induction heads emerge, and when?"""

from attnsweep.search_spaces import Categorical, Sweep


def sweep() -> Sweep:
    """Trains two-block GPTs, one head per block, on repeated random segments: 32 trials x 8 replicates."""
    return Sweep(
        name="induction",
        description="two-block GPTs copy from repeated segments: when do induction heads emerge?",
        workload="gpt",
        space={
            "task": "induction",
            "n_words": 16,
            "n_tokens": 16,
            "n_blocks": 2,
            "d_model": Categorical(choices=(16, 32)),
            "d_ffn": 32,
            "init_sigma": Categorical(choices=(None, 3e-1, 1e-1, 1e-2)),
            "layer_norm_eps": Categorical(choices=(1e-5, 1e-1)),
            "qk": Categorical(choices=("factored", "merged")),
            "batch_size": 16,
            "eval_batch_size": 32,
            "learning_rate": 1e-2,
            "n_steps": 1000,
            "probe_every": 25,
            "stop_when_solved": False,
        },
        sampler="grid",
        trials=32,
        replicates=8,
    )
