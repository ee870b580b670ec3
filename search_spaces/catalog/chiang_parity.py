"""PARITY in the set-up in which Chiang & Cholak 2022 learn FIRST."""

from attnsweep.search_spaces import Categorical, LossQuantile, Sweep


def sweep() -> Sweep:
    """Trains PARITY: 4 lengths x 2 attention scales x 20 seeds, 100 epochs of 100 strings, with a probe every 5 epochs.

    Each position is a separate token, so the cost grows with the length: the longest is 100, tests are at 30.
    """
    return Sweep(
        name="chiang_parity",
        description="PARITY at lengths 3 to 100, with and without log n",
        workload="formal_languages",
        space={
            "language": "parity",
            "train_length": Categorical(choices=(3, 10, 30, 100)),
            "attention_scale": Categorical(choices=("inv_sqrt_d", "log_n_query_inv_sqrt_d")),
            "n_epochs": 20,
            "steps_per_epoch": 500,
            "eval_batch_size": 64,
            "test_batch_size": 100,
            "longest_test_length": 30,
            "test_ladder": False,
            "stop_when_solved": False,
        },
        sampler="grid",
        objective=LossQuantile(quantile=0.5),
        trials=8,
        replicates=20,
    )
