"""At which lengths is FIRST learned, and does it generalize to others? By scale, epsilon, rate and initialization."""

from attnsweep.search_spaces import Categorical, Float, Sweep


def sweep() -> Sweep:
    """Trains FIRST: 256 trials x 8 replicates, 1 or 2 layers and heads, 3,000 steps of 4 strings; each trial has one
    length in 3..300.
    """
    return Sweep(
        name="first_lengths",
        description="encoders learn FIRST: which lengths, what scale of attention, and do longer strings follow?",
        workload="formal_languages",
        space={
            "language": "first",
            "train_length": Categorical(choices=(3, 10, 30, 100, 300)),
            "attention_scale": Categorical(choices=("inv_sqrt_d", "one", "log_n_inv_sqrt_d", "log_n_query_inv_sqrt_d")),
            "init_sigma": Categorical(choices=(None, 1e-2, 1e-1, 3e-1, 1.0)),
            "layer_norm_eps": Categorical(choices=(0.0, 1e-5, 1e-3, 1e-1)),
            "learning_rate": Float(low=1e-4, high=1e-2, log=True),
            # Trainings that differ only in text lengths, scales, sigmas or epsilons train in one pack. Trainings with
            # other numbers of layers or heads need packs of their own.
            "n_layers": Categorical(choices=(1, 2)),
            "n_heads": Categorical(choices=(1, 2)),
            "batch_size": 4,
            "n_steps": 3000,
            "eval_batch_size": 100,
        },
        sampler="random",
        trials=256,
        replicates=8,
    )
