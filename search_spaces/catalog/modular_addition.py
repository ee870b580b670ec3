"""At which weight decay does a transformer that knows its pairs learn to add?"""

from attnsweep.search_spaces import Categorical, Sweep


def sweep() -> Sweep:
    """Trains one-block transformers without norms, full batch, on 70% of the pairs: 3 weight decays x 64 replicates."""
    return Sweep(
        name="modular_addition",
        description="transformers add modulo 23: memorized, generalized or neither, by weight decay",
        workload="modular_addition",
        space={
            "weight_decay": Categorical(choices=(0.1, 1.0, 10.0)),
            "train_fraction": 0.7,
            "p": 23,
            "d_model": 24,
            "d_ffn": 48,
            "init_sigma": 0.2,
            "learning_rate": 1e-2,
            "n_steps": 1000,
        },
        sampler="grid",
        trials=3,
        replicates=64,
    )
