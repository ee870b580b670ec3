"""At which steps a training is looked at."""

_PER_OCTAVE = 4
_TAIL = 0.8
"""The share of the training after which `moving` is judged (SEEDS A.4, item 7)."""


def probe_steps(n_steps: int) -> tuple[int, ...]:
    """Steps 0 to `n_steps`: each at first, then four per doubling; the start of the last fifth and the end included.

    A training of 200 steps is looked at 29 times, one of 20,000 steps 56 times.
    """
    steps = {0, tail_start(n_steps), n_steps}
    octave = 1
    while octave <= n_steps:
        steps.update(round(octave * 2 ** (part / _PER_OCTAVE)) for part in range(_PER_OCTAVE))
        octave *= 2
    return tuple(sorted(step for step in steps if step <= n_steps))


def tail_start(step: int) -> int:
    """The step at which the last fifth of a training of `step` steps begins."""
    return int(_TAIL * step)
