"""When do heads that count bigrams in context emerge, where unigrams say something and where they say nothing?"""

from attnsweep.search_spaces import Categorical, Sweep


def sweep() -> Sweep:
    """Trains 4 trials x 64 replicates, at a reduced size of Edelman et al. 2024: docs/problems/markov_chains.md."""
    return Sweep(
        name="markov_chains",
        description="attention models learn Markov chains in context: uniform, unigrams, bigrams",
        workload="markov_chains",
        space={
            "chains": Categorical(choices=("any", "doubly_stochastic")),
            "n_states": Categorical(choices=(2, 3)),
            "n_steps": 500,
        },
        sampler="grid",
        trials=4,
        replicates=64,
    )
