"""When does a GPT's attention begin to select? Two stages of learning, by initialization, epsilon, form and tying."""

from attnsweep.search_spaces import Categorical, Sweep


def sweep() -> Sweep:
    """Trains one-block GPTs on random bigram tables with plain SGD: all combinations of four parameters, 32 trials x 16
    replicates.
    """
    return Sweep(
        name="gpt_stages",
        description="GPTs learn a table of two tokens: first the current token, then the one before",
        workload="gpt",
        space={
            "task": "bigram_table",
            "init_sigma": Categorical(choices=(1e-1, 1e-2, 1e-3, 1e-4)),
            "layer_norm_eps": Categorical(choices=(1e-12, 1e-5)),
            "qk": Categorical(choices=("factored", "merged")),
            "tied": Categorical(choices=(False, True)),
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
