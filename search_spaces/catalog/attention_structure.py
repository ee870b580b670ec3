"""How small may the structure of self-attention be before translation suffers? A band and columns, or full
attention."""

from attnsweep.search_spaces import Categorical, Sweep


def sweep() -> Sweep:
    """Varies the attention window (0, 1, 2, 4 or unlimited) and the number of rare-token columns (0, 1, 2, 4; no effect
    if unlimited).
    """
    return Sweep(
        name="attention_structure",
        description="Translators whose self-attention sees a band of window and num_pos rare-token columns, or all.",
        workload="translation",
        space={
            "window": Categorical(choices=(None, 0, 1, 2, 4)),
            "num_pos": Categorical(choices=(0, 1, 2, 4)),
            "n_epochs": 3,
            "learning_rate": 2e-3,
            "n_probes": 4,
            "eval_sentences": 256,
        },
        sampler="grid",
        trials=20,
        replicates=8,
    )
