"""The sweep of system P whose trainings Ray Tune gets too."""

from typing import Any

N_CATEGORIES, N_POSITIONS = 10, 20


def sweep_of_system_p(n_steps: int, ranges: dict[str, tuple[float, float]], **course: Any) -> Any:
    """A sweep of trainings that all take `n_steps`.

    Args:
        n_steps: Of a training.
        ranges: From where to where each other parameter is drawn, on a logarithmic scale.
        course: The other fields of `Sweep`: sampler, trials, replicates, ...
    """
    # Not at the top: imports are a part of the time that a benchmark measures.
    from attnsweep.search_spaces import Float, Sweep

    return Sweep(
        name="bench",
        workload="category_pairs",
        space={
            "n_steps": n_steps,
            "n_categories": N_CATEGORIES,
            "n_positions": N_POSITIONS,
            "stop_when_solved": False,
            **{name: Float(low=low, high=high, log=True) for name, (low, high) in ranges.items()},
        },
        **course,
    )
