"""At which initialization, epsilon and width does a network never learn a parity?"""

from attnsweep.search_spaces import Categorical, Conditional, Float, Sweep


def sweep() -> Sweep:
    """Trains networks on the parity of 3 out of 20 signs: 64 trials x 8 replicates."""
    return Sweep(
        name="sparse_parity_starts",
        description="networks learn the parity of 3 of 20 signs, by initialization, epsilon and width",
        workload="sparse_parity",
        space={
            "init_sigma": Float(low=1e-3, high=3.0, log=True),
            "norm": Categorical(choices=("none", "pre")),
            "layer_norm_eps": Conditional(on="norm", among=("pre",), then=Float(low=1e-8, high=1e2, log=True)),
            "width": Categorical(choices=(10, 100)),
            "n_steps": 5000,
        },
        sampler="random",
        trials=64,
        replicates=8,
    )
