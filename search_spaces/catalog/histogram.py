"""Which blocks count letters, by the width d of their embeddings and the width p of their hidden layer?

Source: Behrens, Biggio & Zdeborova 2024, Figure 1, the row without softmax; there with 32 letters and 10 tokens. Here 6
letters and 4 tokens.
"""

from attnsweep.search_spaces import Categorical, Rate, Sweep


def sweep() -> Sweep:
    """Varies the mixing (attention with a first token, or weights by position) and 3 x 3 widths, x 64 seeds."""
    return Sweep(
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
