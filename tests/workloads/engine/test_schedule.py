"""Probes are dense early, logarithmic later, and always see the start, the last fifth and the end."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from attnsweep.workloads.engine.schedule import probe_steps, tail_start


@given(st.integers(1, 10**6))
def test_every_octave_is_looked_at(n_steps: int) -> None:
    steps = probe_steps(n_steps)
    assert steps[0] == 0
    assert steps[-1] == n_steps
    assert tail_start(n_steps) in steps
    assert list(steps) == sorted(set(steps))
    assert all(later <= max(earlier + 1, 1.25 * earlier) for earlier, later in pairwise(steps))
    assert len(steps) <= 4 * n_steps.bit_length() + 3
