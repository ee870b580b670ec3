"""The default steps of probes."""

import math

_PER_OCTAVE = (4, 2, 1)
TAIL = 0.8
"""Whether a loss is still `moving` is judged on the steps after this share of all steps (docs/outcomes.md)."""


def probe_steps(n_steps: int, every: int | None = None, max_probes: float = math.inf) -> tuple[int, ...]:
    """The steps from 0 to `n_steps` at which a training is measured: `every` so many, or ever more rarely.

    The latter are first all steps, then four per doubling, and that where the last fifth begins (29 for 200 steps, 56
    for 20,000). Above `max_probes`, early ones are left out, and later ones thinned to two or one per doubling; the
    first, the last and that at the last fifth stay.
    """
    if every is not None:
        return (*range(0, n_steps, every), n_steps)
    steps, gap = _with_gaps(n_steps, 0), 1
    while len(steps) > max_probes and gap <= 2 * n_steps:
        steps, gap = _with_gaps(n_steps, gap), 2 * gap
    return tuple(sorted(steps))


def _with_gaps(n_steps: int, min_gap: int) -> set[int]:
    """Default probes at least `min_gap` steps apart: a larger gap gives a subset."""
    steps, octave = {0, tail_start(n_steps), n_steps}, 1
    while octave <= n_steps:
        n = next((n for n in _PER_OCTAVE if octave * (2 ** (1 / n) - 1) >= min_gap), 0)
        steps.update(round(octave * 2 ** (part / n)) for part in range(n))
        octave *= 2
    return {step for step in steps if step <= n_steps}


def tail_start(step: int) -> int:
    return int(TAIL * step)
