"""FIRST as Chiang & Cholak 2022 train it (section 5.3, Figure 4), for as long as their script does by default."""

from attnsweep.search_spaces import Categorical, LossQuantile, Sweep


def sweep() -> Sweep:
    """Trains FIRST: 4 lengths x 2 scales x 100 seeds, 100 epochs of 100 strings, tested after each on 100 strings of
    length 1,000.

    The scale with log n is that of the authors' code. Outcomes are judged on 32 strings of training length instead of
    the usual 1,000, which at each of 101 probes would cost more than the training.
    """
    return Sweep(
        name="chiang_fig4",
        description="FIRST learned at lengths 10 to 300, with and without log n",
        workload="formal_languages",
        space={
            "language": "first",
            "train_length": Categorical(choices=(10, 30, 100, 300)),
            "attention_scale": Categorical(choices=("inv_sqrt_d", "log_n_query_inv_sqrt_d")),
            "n_epochs": 100,
            "steps_per_epoch": 100,
            "eval_batch_size": 32,
            "test_batch_size": 100,
            "longest_test_length": 1000,
            "test_ladder": False,
            "fresh_test_strings": True,
            # Solved trainings continue to the last epoch, because the figure shows their whole curves.
            "stop_when_solved": False,
        },
        sampler="grid",
        objective=LossQuantile(quantile=0.5),
        trials=8,
        replicates=100,
    )
