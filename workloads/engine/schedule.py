"""Chooses the steps at which a training is measured."""

import math

_PER_OCTAVE = (4, 2, 1)
TAIL = 0.8
"""Whether a loss is still `moving` is judged on the steps after this share of all steps (docs/outcomes.md)."""


def probe_steps(n_steps: int, every: int | None = None, most: float = math.inf) -> tuple[int, ...]:
    """The steps from 0 to `n_steps` at which a training is measured, `every` so many or ever more rarely.

    The default: first all steps, then four per doubling, and where the last fifth begins (29 for 200 steps, 56 for
    20,000). Above `most`, early ones are left out, then of the later ones all but two or one per doubling; the first,
    the last and that at the last fifth stay.
    """
    if every is not None:
        return (*range(0, n_steps, every), n_steps)
    steps, apart = _apart(n_steps, 0), 1
    while len(steps) > most and apart <= 2 * n_steps:
        steps, apart = _apart(n_steps, apart), 2 * apart
    return tuple(sorted(steps))


def _apart(n_steps: int, least: int) -> set[int]:
    """The default probes that are at least `least` steps apart: with a larger `least`, some of them."""
    steps, octave = {0, tail_start(n_steps), n_steps}, 1
    while octave <= n_steps:
        n = next((n for n in _PER_OCTAVE if octave * (2 ** (1 / n) - 1) >= least), 0)
        steps.update(round(octave * 2 ** (part / n)) for part in range(n))
        octave *= 2
    return {step for step in steps if step <= n_steps}


def tail_start(step: int) -> int:
    return int(TAIL * step)
