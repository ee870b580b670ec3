"""How many replicates a trial gets: a fixed number, or as many as its stuck rate needs to be known precisely."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from attnsweep.search_spaces.confidence_sequence import sequential_interval
from attnsweep.search_spaces.model import SpecModel
from attnsweep.workloads.errors import SpecError

_MAX_INT32 = 2**31 - 1


class Sequential(SpecModel):
    """Gives a trial further replicates, batch by batch, until its stuck rate is known precisely enough.

    The 95% interval of the rate (`confidence_sequence`) stays valid although it decides when to stop.

    Attributes:
        width: The trial ends when the interval is at most this wide.
        threshold: It also ends when the interval excludes this rate.
        at_most: Trainings after which it ends in any case.
        batch: Trainings between two evaluations of the interval.
    """

    kind: Literal["sequential"] = "sequential"
    width: float = Field(default=0.1, gt=0, lt=1)
    threshold: float | None = Field(default=None, gt=0, lt=1)
    at_most: int = Field(default=200, ge=1, le=_MAX_INT32)
    batch: int = Field(default=8, ge=1, le=_MAX_INT32)

    @model_validator(mode="after")
    def _holds_a_batch(self) -> Self:
        if self.at_most < self.batch:
            raise SpecError("at_most", given=self.at_most, expected=f"at least batch={self.batch}", fix="raise at_most")
        return self

    def is_enough(self, n_stuck: int, n: int) -> bool:
        """Whether `n` judged trainings, `n_stuck` of them stuck, tell the stuck rate precisely enough."""
        low, high = sequential_interval(n_stuck, n)
        decided = self.threshold is not None and not low <= self.threshold <= high
        return decided or high - low <= self.width

    def __str__(self) -> str:
        rules = [f"width {self.width:g}"] + ([] if self.threshold is None else [f"threshold {self.threshold:g}"])
        return f"{self.batch}..{self.at_most} ({', '.join(rules)})"


def _check(value: object) -> object:
    if isinstance(value, Sequential):
        return value
    if isinstance(value, Mapping):
        return Sequential.model_validate(value)
    if type(value) is not int or not 1 <= value <= _MAX_INT32:
        raise ValueError(f"a whole number of replicates from 1 to {_MAX_INT32}, or a Sequential")
    return value


Replicates: TypeAlias = Annotated[int | Sequential, BeforeValidator(_check)]
Ended: TypeAlias = Mapping[int, bool | None]
"""Whether each ended training of a trial is stuck, by replicate; `None` if it failed or was pruned."""


def n_wanted(rule: int | Sequential, ended: Ended) -> int:
    """How many replicates a trial needs, given those that have ended.

    With a `Sequential` it follows from the results alone, batch by batch in the order of replicates, so that a further
    result never lowers it. If all of the first batch failed, the trial needs no more.
    """
    if isinstance(rule, int):
        return rule
    n = n_stuck = first = 0
    while True:
        last = min(first + rule.batch, rule.at_most)
        batch = range(first, last)
        if last == first or not all(replicate in ended for replicate in batch):
            return last
        judged = [stuck for replicate in batch if (stuck := ended[replicate]) is not None]
        n, n_stuck, first = n + len(judged), n_stuck + sum(judged), last
        if n == 0 or rule.is_enough(n_stuck, n):
            return last


def is_complete(rule: int | Sequential, ended: Ended) -> bool:
    return len(ended) == n_wanted(rule, ended)


def max_replicates(rule: int | Sequential) -> int:
    return rule if isinstance(rule, int) else rule.at_most
