"""What do statistical induction heads need? Trains the same seeds with attention clamped, scaled, frozen or free."""

from attnsweep.search_spaces import Categorical, Sweep


def sweep() -> Sweep:
    """6 interventions x 32 paired seeds of two-block models with one head a block, on Markov chains of three states."""
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
