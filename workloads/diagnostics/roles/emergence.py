"""When a role emerges: the first probe from which it holds at every later probe. Axes: P probe."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Emergence:
    """Times for a Kaplan-Meier estimate.

    Attributes:
        step: (...) int64, the step of emergence, or the last probe's where it never came: the time of censoring.
        emerged: (...) bool; false is censored, and null in a table.
    """

    step: NDArray[np.int64]
    emerged: NDArray[np.bool_]


def emergence(holds: NDArray[np.bool_], steps: Sequence[int]) -> Emergence:
    """Emergence of a role in any number of heads or trainings.

    Args:
        holds: (P, ...) whether it holds at each probe, in the order of time.
        steps: The P probes' steps, ascending.
    """
    assert len(steps) == len(holds) > 0
    assert all(one < other for one, other in pairwise(steps))
    to_the_end = np.logical_and.accumulate(holds[::-1])[::-1]
    emerged = to_the_end[-1]
    first = np.where(emerged, to_the_end.argmax(0), len(steps) - 1)
    return Emergence(np.asarray(steps, dtype=np.int64)[first], emerged)
