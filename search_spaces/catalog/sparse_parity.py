"""How many steps are needed to learn a product of k of n signs? The law of Barak et al., by n and k."""

from attnsweep.search_spaces import Categorical, Sweep


def sweep() -> Sweep:
    """Trains networks with one hidden layer on new random signs at each step: 9 pairs of n and k x 64 replicates."""
    return Sweep(
        name="sparse_parity",
        description="networks learn the parity of k of n signs: the steps that it takes, by n and k",
        workload="sparse_parity",
        space={
            "n_bits": Categorical(choices=(10, 20, 40)),
            "k": Categorical(choices=(2, 3, 4)),
            "width": 100,
            "n_steps": 10000,
        },
        sampler="grid",
        trials=9,
        replicates=64,
    )
