"""Sweeps of several drivers: each owns a shard of the trials, `DIR/shard-0`, `DIR/shard-1`, ..., a sweep directory.

`DIR/sweep.json` is the record of the whole sweep; its `shards` says how many there are. Everything else is in the
shards: nobody writes rows to DIR itself, so no two drivers write one file. Light to import: a query needs no Optuna.
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
"""Readers look at each."""
_FOLDER = re.compile(r"shard-(0|[1-9]\d{0,8})")


@dataclass(frozen=True, slots=True)
class Shard:
    """The trials of one driver: the numbers t of the sweep's with t mod `count` = `index`.

    Its study numbers them 0, 1, 2, ... by itself. Everything else has the sweep's numbers: seeds, rows, messages.

    Attributes:
        index: The driver's number, from 0.
        count: The drivers.

    Raises:
        ValueError: If there is no such driver.
    """

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count <= MOST_SHARDS:
            raise ValueError(f"shard {self.index} of {self.count}")

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def folder(self) -> str:
        """Its name in the sweep's directory."""
        return f"shard-{self.index}"

    def trial(self, number: int) -> int:
        """The sweep's number of the trial that has this one in the shard's study."""
        return self.index + self.count * number

    def number(self, trial: int) -> int:
        """The inverse of `trial`, for a trial of this shard."""
        return trial // self.count

    def first(self, n_trials: int) -> range:
        """The first so many of its trials."""
        return range(self.index, self.trial(n_trials), self.count)

    def n_of(self, n_trials: int) -> int:
        """How many of the sweep's first trials are its own."""
        return len(range(self.index, n_trials, self.count))


WHOLE = Shard(0, 1)
"""All trials, of a sweep of one driver."""


def place_of_whole(shard: Place) -> Place:
    """The directory of the sweep that a shard's directory is a part of."""
    return place_of(str(shard).rpartition("/")[0] or ".")


def shards_of(place: Place) -> list[Place]:
    """The shards of a sweep that have begun, in their order; none for any other directory.

    This alone decides whether a directory is a sweep of shards: its record says so.

    Raises:
        StoreError: If the place does not answer.
    """
    # What a stranger has written into it, `SweepDirectory.open` refuses in words.
    with suppress(OSError, ValueError, AttributeError, RecursionError):
        n_shards = json.loads(place.read_text("sweep.json")).get("shards")
        if isinstance(n_shards, int) and n_shards:
            found = sorted(int(match[1]) for folder in place.folders() if (match := _FOLDER.fullmatch(folder)))
            return [place.inside(f"shard-{index}") for index in found if index < n_shards]
    return []


def parts_of(place: Place) -> list[Place]:
    """The directories that hold a sweep's rows: its shards, or itself."""
    return shards_of(place) or [place]


def allow_many_files() -> None:
    """Lets this process open as many files as the system allows it: a shard has up to 39, a shell's limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def numbers_in_words(numbers: Iterable[int]) -> str:
    """`0, 2 to 5, 9`."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in ranges)


def at_once(call: Callable[[T], R], given: Iterable[T], n_at_once: int) -> list[R]:
    """The results of a call that asks a place, for each of these in their order."""
    if n_at_once == 1:
        return [call(each) for each in given]
    with ThreadPoolExecutor(n_at_once) as threads:
        return list(threads.map(call, given))
