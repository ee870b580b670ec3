"""Sweeps that several drivers train: each driver owns a part of the trials (a shard), in a sweep directory of its own.
This module imports neither Optuna nor PyTorch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of a sweep's trials that one of several drivers trains: every trial whose number mod `count` is `index`.

    The driver's own Optuna study numbers its trials 0, 1, 2, ... Seeds, rows and messages use the sweep's numbers.

    Attributes:
        index: The driver's number, from 0.
        count: The number of drivers.

    Raises:
        ValueError: If there is no such driver.
    """

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ValueError(f"got shard {self.index} of {self.count}, expected a number from 0 to the count minus 1")

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def trial(self, number: int) -> int:
        """Converts a trial's number in the driver's own study to its number in the whole sweep."""
        return self.index + self.count * number

    def number(self, trial: int) -> int:
        """Converts a trial's number in the whole sweep to its number in the driver's own study."""
        return trial // self.count

    def first(self, n_trials: int) -> range:
        """Returns the numbers, in the whole sweep, of the shard's first `n_trials` trials."""
        return range(self.index, self.trial(n_trials), self.count)

    def n_of(self, n_trials: int) -> int:
        """Returns how many of the sweep's first `n_trials` trials belong to this shard."""
        return len(range(self.index, n_trials, self.count))


WHOLE = Shard(0, 1)
"""The only shard of a sweep with a single driver. It has all trials."""
