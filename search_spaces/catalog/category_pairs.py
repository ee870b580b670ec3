"""The shipped sweeps of category pairs, the problem of Shin & Matzinger 2025: for their models, and for two smaller
ones called systems P and C.

System P is attention on positions alone, system C attention on categories alone. A full model has both.
"""

from attnsweep.search_spaces import Categorical, Conditional, Float, LossQuantile, Sweep

quickstart = Sweep(
    name="quickstart",
    description="attention on positions only: where do trainings end, by init_sigma and learning_rate?",
    workload="category_pairs",
    space={
        "variant": "positions_only",
        "n_categories": 10,
        "n_positions": 20,
        "n_steps": 3000,
        "init_sigma": Float(1e-4, 3.0, log=True),
        "learning_rate": Float(1e-4, 5e-2, log=True),
    },
    sampler="qmc",
    trials=128,
    replicates=8,
)
"""The first sweep to run: when does attention on positions stay stuck at the point near its start where all gradients
vanish?

Near this point ("the zero") the gradients are small. The sweep takes some 20 s on two cores.
"""

million = quickstart.but(
    name="million",
    description="attention on positions only: how sharp are the borders between the ways in which trainings end?",
    trials=62_500,
    replicates=16,
)
"""The sweep `quickstart` with a million trainings: how sharp are the borders between initializations that get stuck and
others?

docs/scale.md says how long it takes.
"""

precision_border = Sweep(
    name="precision_border",
    description="the border of the zero in init_sigma, by floating-point type, with two and three factors",
    workload="category_pairs",
    space={
        "init_sigma": Float(1e-6, 1.0, log=True),
        "dtype": Categorical(("bfloat16", "float32", "float64")),
        "qk": Categorical(("merged", "factored")),
        "variant": "positions_only",
        "n_categories": 5,
        "n_positions": 8,
        "optimizer": "lbfgs",
        "learning_rate": 1.0,
        "n_steps": 150,
    },
    sampler="boundary",
    trials=144,
    replicates=16,
    certified_share=0.1,
)
"""Below which init_sigma does rounding keep attention on positions at the point where the gradient vanishes?

The sweep varies the floating-point type. The attention logits are one matrix of weights, or a product of two. The sweep
takes a few minutes on two cores.
"""

stuck_rates = Sweep(
    name="stuck_rates",
    description="systems P and C: stuck rates by init_sigma, learning_rate, optimizer, softmax",
    workload="category_pairs",
    space={
        "variant": Categorical(("positions_only", "categories_only")),
        "attention_activation": Conditional(
            on="variant", among=("positions_only",), then=Categorical(("identity", "softmax"))
        ),
        "optimizer": Categorical(("sgd", "adam")),
        "n_steps": 4000,
        "init_sigma": Float(1e-4, 3.0, log=True),
        "learning_rate": Float(1e-3, 1e-1, log=True),
    },
    sampler="random",
    trials=250,
    replicates=16,
)
"""How often do attention on positions and attention on categories get stuck, if the loss is the exact mean over all
texts?

The sweep varies initialization, step size and optimizer, and trains with and without softmax.
"""

stuck_full = Sweep(
    name="stuck_full",
    description="full models: stuck rates by init_sigma, layer_norm_eps, attention_scale, softmax and skip",
    workload="category_pairs",
    space={
        "variant": Categorical(("solution_1", "solution_2", "solution_3", "combined")),
        "flavour": Conditional(
            on="variant", among=("combined",), then=Categorical(("unconstrained", "lean_1", "lean_2", "lean_3"))
        ),
        "init_sigma": Categorical((None, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)),
        "layer_norm_eps": Float(1e-7, 1e-1, log=True),
        "attention_scale": Categorical(("one", "inv_sqrt_d", "log_n_inv_sqrt_d", "learned")),
        "attention_activation": Categorical(("identity", "softmax")),
        "skip": Categorical((True, False)),
        "expectation": "fixed_sample",
        "batch_size": 256,
        "n_categories": 10,
        "n_positions": 20,
        "optimizer": "lbfgs",
        "learning_rate": 1.0,
        "n_steps": 250,
        # The paper uses float32, PyTorch's default. float32 takes half the time of float64, but changes outcomes: see
        # docs/zeros.md.
        "dtype": "float32",
    },
    sampler="random",
    trials=512,
    replicates=4,
)

mission_pairs = Sweep(
    name="mission_pairs",
    description="full models: init_sigma, layer_norm_eps, attention_scale and dtype at once",
    workload="category_pairs",
    space={
        "variant": Categorical(("solution_1", "solution_3")),
        "init_sigma": Float(1e-4, 1.0, log=True),
        "layer_norm_eps": Float(1e-7, 1e-1, log=True),
        "attention_scale": Categorical(("one", "inv_sqrt_d", "log_n_inv_sqrt_d", "learned")),
        "dtype": Categorical(("float32", "float64")),
        "expectation": "fixed_sample",
        "batch_size": 256,
        "optimizer": "lbfgs",
        "learning_rate": 1.0,
        "n_steps": 250,
    },
    sampler="random",
    trials=256,
    replicates=4,
)
"""For category pairs: who gets stuck, and which roles do heads take? The sweep is like `mission`, but without an
attention window. It trains full models in two floating-point types."""

mission_pairs_boundary = mission_pairs.but(
    name="mission_pairs_boundary",
    description="full models at the border of being stuck, over the space of `mission_pairs`",
    sampler="boundary",
    trials=64,
)

mission_pairs_tpe = mission_pairs.but(
    name="mission_pairs_tpe",
    description="full models by TPE on the stuck rate, over the space of `mission_pairs`",
    sampler="tpe",
    trials=64,
)

shin_flavours = Sweep(
    name="shin_flavours",
    description="the combined model in four flavours: losses, and what the blocks hold",
    workload="category_pairs",
    space={
        "variant": "combined",
        "flavour": Categorical(("unconstrained", "lean_1", "lean_2", "lean_3")),
        "init_sigma": None,
        "expectation": "fixed_sample",
        "batch_size": 500,
        "n_categories": 10,
        "n_positions": 20,
        "optimizer": "lbfgs",
        "learning_rate": 1.0,
        "n_steps": 500,
        "dtype": "float32",
        # Solved trainings continue to the last iteration, because the paper's figure shows complete curves.
        "stop_when_solved": False,
    },
    sampler="grid",
    objective=LossQuantile(),
    trials=4,
    replicates=20,
)
"""The combined model in the four variants ("flavours") of Shin & Matzinger 2025 (section 4.1, Figures 2 and 3), at a
smaller size.

The sweep takes minutes; the paper's M = 50 and 1,000 texts take hours. The paper has "50 iterations", which we take as
calls of PyTorch's L-BFGS of up to 20 iterations each. After 50 single iterations, hardly any flavour has got past the
loss of the predictor E[Y | X_i], at either size. We train for 500 iterations, that is, 25 calls.
"""

shin_flavours_full = shin_flavours.fix({"n_positions": 50, "batch_size": 1000, "n_steps": 1000}).but(
    name="shin_flavours_full",
    description="the combined model in four flavours at the paper's size: M = 50, 1,000 texts",
)
"""The sweep `shin_flavours` at the paper's size, with 50 calls of L-BFGS of 20 iterations each. It takes two hours of
CPU time."""

shin_solution_2 = Sweep(
    name="shin_solution_2",
    description="solution 2 at the published size",
    workload="category_pairs",
    space={
        "variant": "solution_2",
        "init_sigma": None,
        "expectation": "fixed_sample",
        "batch_size": 1000,
        "n_categories": 10,
        "n_positions": 50,
        "optimizer": "lbfgs",
        "learning_rate": 1.0,
        "n_steps": 300,
        "dtype": "float32",
    },
    sampler="grid",
    objective=LossQuantile(),
    trials=1,
    replicates=20,
)
"""The model in which Shin & Matzinger 2025 construct their second solution, as they train it (section 4.1, Figure 1).

The docstring of `shin_flavours` explains the number of iterations.
"""
