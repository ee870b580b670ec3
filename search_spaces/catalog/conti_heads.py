"""One translator with 1 head a layer and one with 8: what do their heads look at?

Source: Conti 2024, Figures 1 and 2. Ours are smaller, and learn our grammar.
"""

from attnsweep.search_spaces import Categorical, Sweep


def sweep() -> Sweep:
    """Trains two translators, with 1 head and with 8, in 3 passes over 5,000 sentences."""
    return Sweep(
        name="conti_heads",
        description="translators with 1 and with 8 heads a layer, whose attention maps are drawn",
        workload="translation",
        space={"n_heads": Categorical(choices=(1, 8)), "n_epochs": 3, "n_probes": 2, "test_sentences": 0},
        sampler="grid",
        trials=2,
        replicates=1,
    )
