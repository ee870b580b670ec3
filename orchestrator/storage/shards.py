"""Sweeps that several drivers train: each driver owns a part of the trials (a shard), in a sweep directory
`DIR/shard-0`, `DIR/shard-1`, ...

`DIR/sweep.json` is the record of the whole sweep; its field `shards` is the number of shards. Everything else is in the
directories of the shards, so no two drivers write the same file. This module imports neither Optuna nor PyTorch, so
that queries start fast.
"""

import json
import re
import resource
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.storage.place_names import place_of

T = TypeVar("T")
R = TypeVar("R")

MOST_SHARDS = 100_000
"""The limit on the number of shards, because readers open the files of all shards."""
_FOLDER = re.compile(r"shard-(0|[1-9]\d{0,8})")


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of a sweep's trials that one of several drivers trains: every trial whose number mod `count` is `index`.

    The shard's own Optuna study numbers its trials 0, 1, 2, ... Seeds, rows and messages use the sweep's numbers.

    Attributes:
        index: The driver's number, from 0.
        count: The number of drivers.

    Raises:
        ValueError: If there is no such driver.
    """

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count <= MOST_SHARDS:
            raise ValueError(
                f"got shard {self.index} of {self.count}, expected a shard number from 0 to the number of shards"
                f" minus 1, and at most {MOST_SHARDS} shards"
            )

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def folder(self) -> str:
        """The name of the folder, in the sweep's directory, that holds this shard."""
        return f"shard-{self.index}"

    def trial(self, number: int) -> int:
        """Converts the number that a trial has in this part of the sweep (shard), which one driver trains, to the
        trial's number in the whole sweep."""
        return self.index + self.count * number

    def number(self, trial: int) -> int:
        """Converts a trial's number in the whole sweep to its number in the Optuna study of this shard (part of the
        sweep): the inverse of the method `trial`."""
        return trial // self.count

    def first(self, n_trials: int) -> range:
        """Returns the numbers, in the whole sweep, of the shard's first `n_trials` trials."""
        return range(self.index, self.trial(n_trials), self.count)

    def n_of(self, n_trials: int) -> int:
        """Returns how many of the sweep's first `n_trials` trials belong to this shard, which is a part of the sweep
        that runs by itself."""
        return len(range(self.index, n_trials, self.count))


WHOLE = Shard(0, 1)
"""The only shard of a sweep with a single driver. It has all trials."""


def place_of_whole(shard: Place) -> Place:
    """Returns the directory of the whole sweep, given the directory of one of its shards."""
    return place_of(str(shard).rpartition("/")[0] or ".")


def shards_of(place: Place) -> list[Place]:
    """Returns the directories of those shards (one driver's part each) that have begun, in order; none for an undivided
    sweep.

    A sweep has shards if the field `shards` of its record is positive.

    Raises:
        StoreError: If the place does not answer.
    """
    # A record that cannot be parsed is no error here, because `SweepDirectory.open` reports it.
    with suppress(OSError, ValueError, AttributeError, RecursionError):
        n_shards = json.loads(place.read_text("sweep.json")).get("shards")
        if isinstance(n_shards, int) and n_shards:
            indices = sorted(int(match[1]) for folder in place.folders() if (match := _FOLDER.fullmatch(folder)))
            return [place.inside(f"shard-{index}") for index in indices if index < n_shards]
    return []


def parts_of(place: Place) -> list[Place]:
    """Returns the directories that hold a sweep's results: those of its shards or, without shards, the sweep's own."""
    return shards_of(place) or [place]


def allow_many_files() -> None:
    """Raises this process's limit on open files to the system's maximum.

    Each shard of a sweep opens up to 39 files, and shells usually allow 1024 in all.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def numbers_in_words(numbers: Iterable[int]) -> str:
    """Writes numbers as ranges: `0, 2 to 5, 9`."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in ranges)


def at_once(call: Callable[[T], R], items: Iterable[T], n_at_once: int) -> list[R]:
    """Calls a function on each item, up to `n_at_once` items concurrently, and returns the results in order. For
    functions that wait for a disk or network."""
    if n_at_once == 1:
        return [call(item) for item in items]
    with ThreadPoolExecutor(n_at_once) as threads:
        return list(threads.map(call, items))
