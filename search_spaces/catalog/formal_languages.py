"""The shipped sweeps of encoders that learn the formal languages FIRST and PARITY."""

from attnsweep.search_spaces import Categorical, Float, LossQuantile, Sweep

chiang_fig4 = Sweep(
    name="chiang_fig4",
    description="FIRST learned at lengths 10 to 300, with and without log n",
    workload="formal_languages",
    space={
        "language": "first",
        "train_length": Categorical((10, 30, 100, 300)),
        "attention_scale": Categorical(("inv_sqrt_d", "log_n_query_inv_sqrt_d")),
        "n_epochs": 100,
        "steps_per_epoch": 100,
        "eval_batch_size": 32,
        "test_batch_size": 100,
        "longest_test_length": 1000,
        "test_ladder": False,
        "fresh_test_strings": True,
        # Solved trainings continue to the last epoch, because the paper's figure shows complete curves.
        "stop_when_solved": False,
    },
    sampler="grid",
    objective=LossQuantile(),
    trials=8,
    replicates=100,
)
"""Encoders learn the language FIRST as in Chiang & Cholak 2022 (section 5.3, Figure 4), for as many epochs as their
script has by default.

The model is tested after each of 100 epochs on 100 strings of length 1,000. Half of the trainings scale attention with
log n, the logarithm of the text length, as the authors' code does. Outcomes are judged on 32 strings of training
length: the usual 1,000 would cost more, at 101 probes, than the training.
"""

chiang_fig4_logits = chiang_fig4.fix({"attention_scale": "log_n_inv_sqrt_d"}).but(
    name="chiang_fig4_logits", description="chiang_fig4 with the logits times log n", trials=4
)
"""The trainings of `chiang_fig4` that scale with the text length n, but log n multiplies the logits (equation 2 of
Chiang & Cholak 2022).

The authors' code, and `chiang_fig4`, multiply the input of the queries instead.
"""

chiang_fig4_long = chiang_fig4.fix({"n_epochs": 50, "steps_per_epoch": 2000}).but(
    name="chiang_fig4_long", description="chiang_fig4 for 1,000 epochs"
)
"""The sweep `chiang_fig4` with ten times as many epochs, because after 100 epochs the longer strings are not learned
yet.

The model is tested after every 20 epochs; an epoch has 100 strings.
"""

chiang_parity = Sweep(
    name="chiang_parity",
    description="PARITY at lengths 3 to 100, with and without log n",
    workload="formal_languages",
    space={
        "language": "parity",
        "train_length": Categorical((3, 10, 30, 100)),
        "attention_scale": Categorical(("inv_sqrt_d", "log_n_query_inv_sqrt_d")),
        "n_epochs": 20,
        "steps_per_epoch": 500,
        "eval_batch_size": 64,
        "test_batch_size": 100,
        "longest_test_length": 30,
        "test_ladder": False,
        "stop_when_solved": False,
    },
    sampler="grid",
    objective=LossQuantile(),
    trials=8,
    replicates=20,
)
"""PARITY in the set-up in which Chiang & Cholak 2022 learn FIRST.

Each position is a separate token, so the cost grows with the length of the strings. Therefore the longest strings have
length 100, and tests use length 30.
"""

first_lengths = Sweep(
    name="first_lengths",
    description="encoders learn FIRST: which lengths, what scale of attention, and do longer strings follow?",
    workload="formal_languages",
    space={
        "language": "first",
        "train_length": Categorical((3, 10, 30, 100, 300)),
        "attention_scale": Categorical(("inv_sqrt_d", "one", "log_n_inv_sqrt_d", "log_n_query_inv_sqrt_d")),
        "init_sigma": Categorical((None, 1e-2, 1e-1, 3e-1, 1.0)),
        "layer_norm_eps": Categorical((0.0, 1e-5, 1e-3, 1e-1)),
        "learning_rate": Float(1e-4, 1e-2, log=True),
        # Trainings that differ only in text length, scale, sigma or epsilon train together, as one batched program.
        # Each number of layers or heads needs a program of its own.
        "n_layers": Categorical((1, 2)),
        "n_heads": Categorical((1, 2)),
        "batch_size": 4,
        "n_steps": 3000,
        "eval_batch_size": 100,
    },
    sampler="random",
    trials=256,
    replicates=8,
)

parity_learnability = Sweep(
    name="parity_learnability",
    description="encoders try PARITY: which lengths are learned, by scale, epsilon, rate, layers and heads?",
    workload="formal_languages",
    space={
        "language": "parity",
        "train_length": Categorical((2, 4, 12)),
        "attention_scale": Categorical(("inv_sqrt_d", "one", "log_n_inv_sqrt_d")),
        "init_sigma": Categorical((None, 1e-1, 5e-1)),
        "layer_norm_eps": Categorical((0.0, 1e-5, 1e-1)),
        "learning_rate": Float(3e-4, 1e-2, log=True),
        "n_layers": Categorical((1, 2)),
        "n_heads": Categorical((1, 2)),
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
"""Is PARITY ever learned? An encoder can represent it exactly, but training by gradient descent may not find this
solution."""
