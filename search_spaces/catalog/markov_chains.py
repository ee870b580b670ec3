"""When do heads that count bigrams in context emerge, where unigrams say something and where they say nothing?"""

from attnsweep.search_spaces import Categorical, Sweep


def sweep() -> Sweep:
    """2 trials x 64 replicates, reduced from Edelman et al. 2024: docs/problems/markov_chains.md."""
    return Sweep(
        name="markov_chains",
        description="128 attention models learn Markov chains in context: uniform, unigrams, bigrams",
        workload="markov_chains",
        space={"chains": Categorical(choices=("any", "doubly_stochastic")), "n_states": 2, "n_steps": 500},
        sampler="grid",
        trials=2,
        replicates=64,
    )
