from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shard:
    """The trials that one of several drivers trains, in a directory of its own: those whose number mod `count` is
    `index`. The driver's own study numbers them 0, 1, 2, ..."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ValueError(f"got shard {self.index} of {self.count}, expected a number from 0 to the count minus 1")

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def trial(self, number: int) -> int:
        """From the driver's own study to the sweep's number."""
        return self.index + self.count * number

    def number(self, trial: int) -> int:
        """From the sweep's number to that of the driver's own study."""
        return trial // self.count

    def first(self, n_trials: int) -> range:
        """The sweep's numbers of the shard's first trials."""
        return range(self.index, self.trial(n_trials), self.count)

    def n_of(self, n_trials: int) -> int:
        """How many of the sweep's first trials are the shard's."""
        return len(range(self.index, n_trials, self.count))


WHOLE = Shard(0, 1)
