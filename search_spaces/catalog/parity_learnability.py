"""Is PARITY ever learned? An encoder can represent it exactly, but gradient descent need not find the solution."""

from attnsweep.search_spaces import Categorical, Float, Sweep


def sweep() -> Sweep:
    """Trains PARITY at lengths 2 to 12, 1 or 2 layers and heads, 2,000 steps of 8 strings: 96 trials x 8 replicates."""
    return Sweep(
        name="parity_learnability",
        description="encoders try PARITY: which lengths are learned, by scale, epsilon, rate, layers and heads?",
        workload="formal_languages",
        space={
            "language": "parity",
            "train_length": Categorical(choices=(2, 4, 12)),
            "attention_scale": Categorical(choices=("inv_sqrt_d", "one", "log_n_inv_sqrt_d")),
            "init_sigma": Categorical(choices=(None, 1e-1, 5e-1)),
            "layer_norm_eps": Categorical(choices=(0.0, 1e-5, 1e-1)),
            "learning_rate": Float(low=3e-4, high=1e-2, log=True),
            "n_layers": Categorical(choices=(1, 2)),
            "n_heads": Categorical(choices=(1, 2)),
            "batch_size": 8,
            "n_steps": 2000,
            "eval_batch_size": 64,
            "test_batch_size": 64,
            "longest_test_length": 20,
        },
        sampler="random",
        trials=96,
        replicates=8,
    )
