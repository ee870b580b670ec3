"""The plane of two parameters and the trials in it. Axes: T trial."""

from dataclasses import dataclass

import numpy as np

from attnsweep.orchestrator.analysis.phase.splines import Floats


@dataclass(frozen=True, slots=True)
class PlaneAxis:
    """One of a plane's two parameters; `low` and `high` are the smallest and the largest value that was tried."""

    name: str
    log: bool
    low: float
    high: float

    def scaled(self, values: Floats) -> Floats:
        """Scales values to the range -1 to 1, which covers the values that were tried; by logarithms if the axis is
        logarithmic."""
        if self.log:
            # A value of 0 has no place on a logarithmic axis, so its coordinate is -inf.
            with np.errstate(divide="ignore"):
                return np.asarray(2 * np.log(values / self.low) / np.log(self.high / self.low) - 1)
        return np.asarray(2 * (values - self.low) / (self.high - self.low) - 1)

    def values(self, scaled: Floats) -> Floats:
        """Converts scaled values back to values of the parameter: the inverse of `scaled`."""
        share = (np.asarray(scaled) + 1) / 2
        if self.log:
            return np.asarray(self.low * (self.high / self.low) ** share)
        return np.asarray(self.low + (self.high - self.low) * share)


@dataclass(frozen=True, eq=False, slots=True)
class TrialCounts:
    """The counts of T trials: where each trial is in the plane, its number of trainings, and how many had the ending.

    Attributes:
        x, y: (T,) the values of the two parameters.
        n: (T,) the number of trainings counted.
        k: (T,) the number of these that have the ending.
    """

    x: Floats
    y: Floats
    n: Floats
    k: Floats
