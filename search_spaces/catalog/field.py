"""The shipped sweeps of small problems from the literature, each about one phenomenon of training."""

from attnsweep.search_spaces import Categorical, Conditional, Float, Rate, Sweep

abrupt_learning = Sweep(
    name="abrupt_learning",
    description="how long the plateau of a moving-window sum lasts, by the bias of its attention",
    workload="abrupt_learning",
    space={"optimal_scale": Categorical((0.2, 0.5, 1.0, 2.5, 10.0))},
    sampler="grid",
    objective=Rate("solved"),
    trials=5,
    replicates=64,
)
"""How long is the plateau in learning moving-window sums, if attention is biased towards or away from the needed
tokens?

The sweep varies the strength of the bias.
Source: Gopalani & Hu 2025, Figures 3 and 4. The sizes are smaller here: the descriptions of the workload's parameters
name those of the source.
"""

abrupt_learning_starts = Sweep(
    name="abrupt_learning_starts",
    description="how long the plateau of a moving-window sum lasts, by the initialization",
    workload="abrupt_learning",
    space={"init_sigma": Categorical((0.03, 0.06, 0.12, 0.24))},
    sampler="grid",
    objective=Rate("solved"),
    trials=4,
    replicates=64,
)
"""How does the length of the plateau of the moving-window sum depend on the initialization's standard deviation?

At a standard deviation of 0.02 sqrt(256 / 24) = 0.065 the attention logits are as large as those of Gopalani & Hu 2025.
"""

abrupt_learning_tasks = Sweep(
    name="abrupt_learning_tasks",
    description="how long the plateau of copies, reversals, moving-window and prefix sums lasts",
    workload="abrupt_learning",
    space={"task": Categorical(("reverse", "copy", "window_sum", "prefix_sum"))},
    sampler="grid",
    objective=Rate("solved"),
    trials=4,
    replicates=64,
)
"""How long does a model stay on the initial loss plateau, for each of several tasks?

Source: Gopalani & Hu 2025, whose models leave the plateau after 100 (reverse, copy), 400 (moving-window sum) and 1,000
steps (prefix sum). The sizes are smaller here.
"""

histogram = Sweep(
    name="histogram",
    description="the share that learns to count letters, by embedding and hidden width",
    workload="histogram",
    space={
        "mixing": Categorical(("bos", "lin")),
        "softmax": False,
        "d_model": Categorical((3, 6, 12)),
        "d_ffn": Categorical((3, 6, 12)),
    },
    sampler="grid",
    objective=Rate("solved"),
    trials=18,
    replicates=64,
)
"""At which embedding width d and hidden width p does a Transformer block learn to count the letters of a text?

The blocks mix tokens by attention with a first token, or by weights that depend on positions alone.
Source: Behrens, Biggio & Zdeborova 2024, Figure 1, the row without softmax. The paper has 32 letters and texts of 10
tokens, this sweep 6 letters and 4 tokens.
"""

in_context_regression = Sweep(
    name="in_context_regression",
    description="linear attentions learn regression in context: one drop, or a staircase",
    workload="in_context_regression",
    space={
        "kq": Categorical(("merged", "separate")),
        "n_heads": Categorical((1, 2, 5)),
        "init_sigma": Categorical((1e-2, 1e-4, 1e-6)),
        "attention_scale": Categorical((0.5, 1.0, 2.0)),
        "learning_rate": 0.2,
        "n_steps": 10_000,
    },
    sampler="grid",
    trials=54,
    replicates=8,
)
"""Does the loss of linear attention on in-context regression fall at once, in several steps, or only partly?

The loss is the exact mean over all prompts. The sizes and the learning rate are those of Zhang et al. 2025.
"""

markov_chains = Sweep(
    name="markov_chains",
    description="attention models learn Markov chains in context: uniform, unigrams, bigrams",
    workload="markov_chains",
    space={"chains": Categorical(("any", "doubly_stochastic")), "n_states": Categorical((2, 3)), "n_steps": 500},
    sampler="grid",
    trials=4,
    replicates=64,
)
"""When do attention heads emerge that count bigrams in the context, if unigram counts help prediction, and if they do
not?

The sizes are smaller than those of Edelman et al. 2024: see docs/problems/markov_chains.md.
"""

markov_needs = Sweep(
    name="markov_needs",
    description="models of in-context Markov chains with and without interventions, on the same seeds",
    workload="markov_chains",
    space={
        "n_steps": 500,
        "stop_when_solved": False,
        "intervention": Categorical(
            choices=(
                None,
                "clamp 0:0 previous_token 0..",
                "clamp 0:0 uniform 0..",
                "clamp 1:0 uniform 0..100",
                "freeze blocks.1.attention.query 0..",
                "scale attention 3 0..100",
            )
        ),
    },
    sampler="grid",
    trials=6,
    replicates=32,
)
"""What do statistical induction heads (heads that count bigrams in the context) need to emerge? The same seeds are
trained with and without interventions.

Two-block models, one head per block, learn 3-state Markov chains with attention clamped, scaled, frozen or free.
"""

modular_addition = Sweep(
    name="modular_addition",
    description="transformers add modulo 23: memorized, generalized or neither, by weight decay",
    workload="modular_addition",
    space={
        "weight_decay": Categorical((0.1, 1.0, 10.0)),
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
"""At which weight decay does a transformer that is trained on 70% of the pairs learn to add the other pairs (modulo
23)?

One-block transformers without LayerNorm are trained on all these pairs at each step.
"""

modular_addition_data = modular_addition.but(
    name="modular_addition_data",
    description="transformers add modulo 23: how long it takes, by the share of pairs trained on",
    space={**modular_addition.space, "weight_decay": 1.0, "train_fraction": Categorical((0.6, 0.7, 0.8))},
)

modular_addition_starts = modular_addition.but(
    name="modular_addition_starts",
    description="transformers add modulo 23, by initialization, betas, attention scale and LayerNorm",
    space={
        **modular_addition.space,
        "weight_decay": 1.0,
        "init_sigma": Float(0.02, 1.0, log=True),
        "beta_2": Categorical((0.98, 0.999)),
        "attention_scale": Float(0.1, 10.0, log=True),
        "norm": Categorical(("none", "pre")),
        "layer_norm_eps": Conditional(on="norm", among=("pre",), then=Float(1e-6, 10.0, log=True)),
    },
    sampler="qmc",
    trials=32,
    replicates=4,
)

sequence_tasks = Sweep(
    name="sequence_tasks",
    description="majority, brackets, sorting and recall, by depth and length",
    workload="sequence_tasks",
    space={
        "task": Categorical(("majority", "brackets", "sort", "recall")),
        "n_blocks": Categorical((1, 2)),
        "length": Categorical((4, 8)),
    },
    sampler="grid",
    objective=Rate("solved"),
    trials=16,
    replicates=16,
)

sparse_parity = Sweep(
    name="sparse_parity",
    description="networks learn the parity of k of n signs: the steps that it takes, by n and k",
    workload="sparse_parity",
    space={"n_bits": Categorical((10, 20, 40)), "k": Categorical((2, 3, 4)), "width": 100, "n_steps": 10000},
    sampler="grid",
    trials=9,
    replicates=64,
)
"""How many steps does it take to learn the product of k out of n random signs? A test of the formula in n and k of
Barak et al.

Networks with one hidden layer see new random signs at each step.
"""

sparse_parity_starts = Sweep(
    name="sparse_parity_starts",
    description="networks learn the parity of 3 of 20 signs, by initialization, epsilon and width",
    workload="sparse_parity",
    space={
        "init_sigma": Float(1e-3, 3.0, log=True),
        "norm": Categorical(("none", "pre")),
        "layer_norm_eps": Conditional(on="norm", among=("pre",), then=Float(1e-8, 1e2, log=True)),
        "width": Categorical((10, 100)),
        "n_steps": 5000,
    },
    sampler="random",
    trials=64,
    replicates=8,
)
