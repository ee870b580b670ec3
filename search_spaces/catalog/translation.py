"""The shipped sweeps of models that translate between the languages of a synthetic grammar."""

from attnsweep.search_spaces import Categorical, Float, Sweep

attention_structure = Sweep(
    name="attention_structure",
    description="Translators whose self-attention sees a band of window and num_pos rare-token columns, or all.",
    workload="translation",
    space={
        "window": Categorical((None, 0, 1, 2, 4)),
        "num_pos": Categorical((0, 1, 2, 4)),
        "n_epochs": 3,
        "learning_rate": 2e-3,
        "n_probes": 4,
        "eval_sentences": 256,
    },
    sampler="grid",
    trials=20,
    replicates=8,
)
"""How narrow may the structure of self-attention be before translations become worse?

The structure is a band around the diagonal and columns of rare tokens. The number of columns has no effect if the band
is unlimited.
"""

conti_heads = Sweep(
    name="conti_heads",
    description="translators with 1 and with 8 heads a layer, whose attention maps are drawn",
    workload="translation",
    space={"n_heads": Categorical((1, 8)), "n_epochs": 3, "n_probes": 2, "test_sentences": 0},
    sampler="grid",
    trials=2,
    replicates=1,
)
"""Which words do attention heads look at, in a translator with 1 head per layer and in one with 8?

Source: Conti 2024, Figures 1 and 2. Our translators are smaller, and learn an artificial grammar.
"""

head_roles = Sweep(
    name="head_roles",
    description="translators of a synthetic grammar: do their heads become positional, syntactic, rare-token?",
    workload="translation",
    space={
        "n_heads": Categorical((1, 2, 4, 8)),
        "layer_norm_convention": Categorical(("inside_root", "outside_root")),
        "layer_norm_eps": Float(1e-6, 1.0, log=True),
        "init_sigma": Categorical((None, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1)),
        "attention_scale": Categorical(("inv_sqrt_d", "one", "log_n_inv_sqrt_d")),
        "learning_rate": Float(3e-4, 1e-2, log=True),
        "n_epochs": 6,
        "n_probes": 8,
    },
    sampler="random",
    trials=128,
    replicates=4,
)
"""Which roles, such as looking at the previous word, do attention heads take, when, and at which hyperparameters?

One-block translators are trained in 6 passes over 5,000 sentences.
"""

mission = Sweep(
    name="mission",
    description="translators: init_sigma, layer_norm_eps, attention_scale, window, num_pos at once, by TPE",
    workload="translation",
    space={
        "init_sigma": Float(1e-3, 1.0, log=True),
        "layer_norm_eps": Float(1e-6, 1.0, log=True),
        "attention_scale": Categorical(("inv_sqrt_d", "one", "log_n_inv_sqrt_d")),
        "window": Categorical((0, 1, 2, 4, None)),
        "num_pos": Categorical((0, 1, 2, 4)),
        "n_epochs": 2,
        "head_sentences": 200,
        "test_sentences": 0,
    },
    sampler="tpe",
    trials=256,
    replicates=4,
)
"""Which translators get stuck, and which roles do heads take? By initialization, LayerNorm's epsilon and attention
structure.

The sampler TPE searches for the lowest stuck rate. One-block translators are trained in 2 passes over 5,000 sentences.
"""

mission_boundary = mission.but(
    name="mission_boundary",
    description="translators at the border of being stuck, over the space of `mission`",
    sampler="boundary",
)

mission_random = mission.but(
    name="mission_random",
    description="translators at random over init_sigma, layer_norm_eps, attention_scale, window, num_pos",
    sampler="random",
)

positional_heads = Sweep(
    name="positional_heads",
    description="translators: do larger ones, those trained for longer, or with dropout get positional heads?",
    workload="translation",
    space={
        "d_model": Categorical((64, 128)),
        "n_heads": Categorical((4, 8)),
        "n_epochs": Categorical((6, 48)),
        "learning_rate": Categorical((1e-3, 3e-3)),
        "dropout": Categorical((0.0, 0.1)),
        "n_probes": 8,
        "test_sentences": 0,
    },
    sampler="grid",
    trials=32,
    replicates=16,
)
"""Do positional heads (looking at a fixed offset) emerge in translators that are larger, train longer, or have more
heads or dropout?

Source: Voita et al. 2019, section 5.1; Conti 2024. In the sweep `head_roles`, none of 512 heads is positional.
"""

translation_lengths = Sweep(
    name="translation_lengths",
    description="translators, trained on all sentences or on the short: cross-entropy and BLEU on the long.",
    workload="translation",
    space={
        "train_on": Categorical(("all", "short")),
        "attention_scale": Categorical(("inv_sqrt_d", "log_n_inv_sqrt_d")),
        "n_epochs": 5,
        "learning_rate": 2e-3,
        "n_probes": 4,
        "eval_sentences": 256,
        "test_sentences": 500,
    },
    sampler="grid",
    trials=4,
    replicates=20,
)
"""How do translators trained on short sentences translate long ones, with and without attention that scales with the
log of the length?

Source: Chiang & Cholak 2022, table 1.
"""

translation_needs = Sweep(
    name="translation_needs",
    description="translators with and without interventions, on the same seeds: what do their heads need?",
    workload="translation",
    space={
        "d_model": 32,
        "d_ffn": 64,
        "n_heads": 2,
        "batch_size": 8,
        "n_steps": 800,
        "learning_rate": 8e-3,
        "probe_every": 50,
        "head_sentences": 128,
        "test_sentences": 0,
        "intervention": Categorical(
            choices=(
                None,
                "clamp 0:0 uniform 0..; clamp 0:1 uniform 0..",
                "clamp 0:0 previous_token 0..; clamp 0:1 next_token 0..",
                "clamp 1:0 previous_token 0..",
                "clamp 2:0 uniform 0..; clamp 2:1 uniform 0..",
                "freeze decoder_self.query_weight_DD 0..",
                "scale attention 3 0..200",
            )
        ),
    },
    sampler="grid",
    trials=7,
    replicates=16,
)
"""What do the attention heads of translators need to take roles? The same seeds are trained with and without
interventions.

The interventions clamp, freeze and scale the attention of one-block translators with two heads per layer.
"""
