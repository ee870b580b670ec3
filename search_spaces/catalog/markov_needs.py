"""What do statistical induction heads need? Trains the same seeds with attention clamped, scaled, frozen or free."""

from attnsweep.search_spaces import Categorical, Sweep


def sweep() -> Sweep:
    """Trains two-block models, one head per block, on 3-state Markov chains: 6 interventions x the same 32 seeds."""
    return Sweep(
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
