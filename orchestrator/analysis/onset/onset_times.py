"""The step at which each training reached an outcome or a role. Axes: R training."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.onset.share_by_step import CurvePoint, median_of_those_that_come, share_by_step


@dataclass(frozen=True, eq=False, slots=True)
class OnsetTimes:
    """The step at which each training reached an outcome or a role, or at which it was censored.

    Attributes:
        trial: (R,) the training's trial.
        step: (R,) the step at which the training reached it, or was censored.
        came: (R,) whether it was reached; false means censored.
    """

    trial: NDArray[np.int64]
    step: NDArray[np.int64]
    came: NDArray[np.bool_]

    def where(self, inside: NDArray[np.bool_]) -> "OnsetTimes":
        """The times of the trainings for which `inside` (R,) is true."""
        return OnsetTimes(self.trial[inside], self.step[inside], self.came[inside])

    @property
    def n_came(self) -> int:
        """The number of trainings that reached it."""
        return int(self.came.sum())

    @property
    def median_step(self) -> int | None:
        """The step by which half of those that reach it at all, within the steps seen, have reached it; `None` if none
        does. Like the curve, it takes into account that censored trainings might have reached it later."""
        return median_of_those_that_come(self.step, self.came)

    def curve(self, *, once_per_trial: bool) -> tuple[CurvePoint, ...]:
        """The share that has reached it, by step."""
        return share_by_step(self.step, self.came, self.trial, once_per_trial=once_per_trial)
