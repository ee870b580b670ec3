"""The shipped sweeps that train small GPTs."""

from attnsweep.search_spaces import Categorical, Sweep

gpt_stages = Sweep(
    name="gpt_stages",
    description="GPTs learn a table of two tokens: first the current token, then the one before",
    workload="gpt",
    space={
        "task": "bigram_table",
        "init_sigma": Categorical((1e-1, 1e-2, 1e-3, 1e-4)),
        "layer_norm_eps": Categorical((1e-12, 1e-5)),
        "qk": Categorical(("factored", "merged")),
        "tied": Categorical((False, True)),
        "d_ffn": 32,
        "optimizer": "sgd",
        "learning_rate": 0.3,
        "n_steps": 1200,
        "probe_every": 5,
        "eval_batch_size": 128,
    },
    sampler="grid",
    trials=32,
    replicates=16,
)
"""When does a GPT's attention begin to prefer some tokens, in the second of two stages of learning?

One-block GPTs learn random bigram tables by plain SGD. The sweep varies initialization, LayerNorm's epsilon, the form
of the attention, and whether embeddings are tied.
"""

induction = Sweep(
    name="induction",
    description="two-block GPTs copy from repeated segments: when do induction heads emerge?",
    workload="gpt",
    space={
        "task": "induction",
        "n_words": 16,
        "n_tokens": 16,
        "n_blocks": 2,
        "d_model": Categorical((16, 32)),
        "d_ffn": 32,
        "init_sigma": Categorical((None, 3e-1, 1e-1, 1e-2)),
        "layer_norm_eps": Categorical((1e-5, 1e-1)),
        "qk": Categorical(("factored", "merged")),
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
"""When do induction heads emerge, by initialization, LayerNorm's epsilon and width?

Two-block GPTs, one head per block, learn repeated random segments.
"""

induction_needs = induction.but(
    name="induction_needs",
    description="two-block GPTs with and without interventions, on the same seeds: what do induction heads need?",
    space={
        **{name: value for name, value in induction.space.items() if name not in ("layer_norm_eps", "qk")},
        "d_model": 16,
        "init_sigma": None,
        "n_steps": 500,
        "probe_every": 20,
        "intervention": Categorical(
            (
                None,
                "clamp 0:0 previous_token 0..",
                "clamp 0:0 none 0..",
                "clamp 0:0 none 0..200",
                "freeze blocks.1.attention.query 0..",
                "kick 0.3 at 100",
            )
        ),
    },
    trials=6,
    replicates=64,
)
"""What do induction heads need to emerge? The same seeds are trained with and without interventions.

The interventions clamp heads, freeze parameters, and kick the weights: add noise to them once.
"""
