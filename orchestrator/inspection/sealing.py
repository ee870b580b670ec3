"""Finds the step from which on a training's outcome is nearly certain ("sealed"): continued from there, it ends as it
did with a chance of at least 0.9.

The step is found by bisection over the training's probes, the steps at which it was measured. At each probe
continuations are trained, 24 at a time, until an anytime-valid interval of the committor (the chance of the outcome)
lies on one side of 0.9. The interval's error rate is shared among the probes that a bisection can visit, so all
verdicts together are right with a chance of at least 95%. Bisection finds one crossing of 0.9; a committor may cross it
several times.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from attnsweep.orchestrator.analysis.answer import Answer, Record, table
from attnsweep.orchestrator.analysis.rates.intervals import RATE_COLUMNS, Rate, share_label
from attnsweep.orchestrator.inspection.continuation import DRAWS, Change, Origin, Source
from attnsweep.orchestrator.inspection.fork import DEFAULT_N, DEFAULT_SIZE, check_numbers, check_outcome
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.confidence_sequence import ERROR_RATE, sequential_interval

SEALED_AT = 0.9
_AT_ONCE = 24
"""The number of continuations that are trained between two evaluations of the interval."""

Verdict: TypeAlias = Literal["open", "sealed", "undecided"]


@dataclass(frozen=True, slots=True)
class Visit(Record):
    """One of the steps from which a training was continued many times, and the share of its continuations that ended as
    the training itself did.

    Attributes:
        step: The step from which the continuations began.
        rate: The share of continuations that ended like the training, with an anytime-valid interval.
    """

    json_keys = ("step", "**rate", "verdict")

    step: int
    rate: Rate

    @property
    def verdict(self) -> Verdict:
        """Whether it is nearly certain, at the step from which continuations began, how the training will end: `sealed`
        (yes), `open` (no) or `undecided`.

        It is `sealed` if the interval for the share of continuations that ended like the training lies above 0.9, and
        `open` if it lies below.
        """
        assert self.rate.interval is not None
        _, low, high = self.rate.interval
        if low >= SEALED_AT:
            return "sealed"
        return "open" if high < SEALED_AT else "undecided"


@dataclass(frozen=True, kw_only=True, repr=False)
class Sealing(Answer, Record):
    """The step from which on the outcome of one training was nearly certain ("sealed", a chance of at least 0.9), with
    the continuations that show it.

    Attributes:
        origin: The training.
        outcome: The outcome in question.
        redraw: What differs in continuations.
        visits: The steps at which continuations were trained, in order.
        difference, notes: As in `Fork`.
    """

    json_keys = ("**origin", "outcome", "redraw", "open_at", "sealed_at", "visits", "difference", "notes")

    origin: Origin
    outcome: str
    redraw: Change
    visits: tuple[Visit, ...]
    difference: str
    notes: tuple[str, ...]

    @property
    def sealed_at(self) -> int:
        """The first of the examined steps from which on the training's outcome was nearly certain (a chance of at least
        0.9). If there is none, it is the step at which the training ended."""
        return min((visit.step for visit in self.visits if visit.verdict == "sealed"), default=self.origin.n_steps)

    @property
    def open_at(self) -> int | None:
        """The last step, of those from which continuations were trained, at which the training's outcome was still open
        (a chance below 0.9); `None` if it was open at none of them."""
        return max((visit.step for visit in self.visits if visit.verdict == "open"), default=None)

    @property
    def fate(self) -> str:
        """How the training ended whose continuations are examined, in words: with the outcome in question, such as
        `solved`, or without it, such as `not solved`.
        """
        return self.outcome if self.origin.recorded == self.outcome else f"not {self.outcome}"

    def to_arrow(self) -> pa.Table:
        """Returns a table with a row for each step from which one training was continued: how many of the continuations
        ended as the training itself did, and whether its end was nearly certain."""
        rows = [(visit.step, *visit.rate.row, visit.verdict) for visit in self.visits]
        return table({"step": int, **RATE_COLUMNS, "verdict": str}, rows)

    def print(self, console: Console) -> None:
        """Prints for each step from which the training was continued which share of the continuations ended like it,
        and whether this outcome is nearly certain there. Then prints the step from which on it was nearly certain.
        """
        for line in (f"{self.origin}; continuations with {DRAWS[self.redraw]}", *self.notes):
            console.print(line, soft_wrap=True, markup=False)
        grid = Table("from step", self.fate, "share (anytime interval)", "", box=None, header_style="bold")
        for visit in self.visits:
            rate = visit.rate
            grid.add_row(str(visit.step), f"{rate.k} of {rate.n}", share_label(rate), visit.verdict)
        console.print(grid)
        console.print(self._in_words(), soft_wrap=True, markup=False)
        if self.difference:
            console.print(f"continued with its own draws it {self.difference}", soft_wrap=True, markup=False)

    def _in_words(self) -> str:
        before = "" if self.open_at is None else f", open at step {self.open_at}"
        where = "its end" if self.sealed_at == self.origin.n_steps else f"step {self.sealed_at}"
        return f"{self.origin.name}: sealed (P({self.fate}) >= {SEALED_AT}) by {where}{before}"


def sealing(
    directory: SweepDirectory,
    name: str,
    *,
    redraw: Change = "data",
    outcome: str | None = None,
    n: int = DEFAULT_N,
    size: float = DEFAULT_SIZE,
    say: Callable[[str], None] = lambda _: None,
) -> Sealing:
    """Finds the step from which on the outcome of a training was nearly certain, as `OpenedSweep.sealing` describes.

    Args:
        directory, name, say: As in `fork`.
        redraw, outcome, n, size: As in `OpenedSweep.sealing`.

    Raises:
        UserError: As `fork`, or for an outcome that the workload does not have.
    """
    check_numbers(n, size)
    source = Source(directory, name, redraw, size)
    about = source.row["outcome"] if outcome is None else outcome
    check_outcome(about, source.outcomes)
    steps = source.probe_steps[:-1]
    n_visits = 1 + math.ceil(math.log2(max(len(steps), 1)))
    longest = source.seconds(0, n * n_visits)
    say(f"at most {n_visits} steps with {n} continuations each: at most about {longest:.1f} s ...")
    states, is_own = source.states(steps), source.origin.recorded == about
    differences = []

    def count_alike(step: int, numbers: range) -> int:
        # The first call of `count_alike` also repeats the original training (number 0), to check that it ends as
        # recorded.
        is_first = step == 0 and numbers.start == 1
        continued = source.continued(states, step, range(0 if is_first else numbers.start, numbers.stop))
        differences.append(continued.difference)
        outcomes = continued.rows.trainings["outcome"].to_pylist()[-len(numbers) :]
        return sum((outcome == about) == is_own for outcome in outcomes)

    return Sealing(
        origin=source.origin,
        outcome=about,
        redraw=redraw,
        visits=bisected(steps, lambda step: decided(step, partial(count_alike, step), n, ERROR_RATE / n_visits)),
        difference=next(filter(None, differences), ""),
        notes=source.notes,
    )


def bisected(steps: Sequence[int], look: Callable[[int], Visit]) -> tuple[Visit, ...]:
    """Searches by bisection for the first step from which on the training's outcome is nearly certain. Returns all
    steps that it tried.

    Args:
        steps: The probes before the training's end; at the end the fate is sealed by definition.
        look: Trains continuations from a step.

    Returns:
        The visits, in the order of their steps.
    """
    visits = {0: look(steps[0])}
    low, high = 0, len(steps)
    while visits[0].verdict != "sealed" and high - low > 1:
        middle = (low + high) // 2
        visits[middle] = look(steps[middle])
        low, high = (low, middle) if visits[middle].verdict == "sealed" else (middle, high)
    return tuple(visits[place] for place in sorted(visits))


def decided(step: int, count: Callable[[range], int], most: int, error_rate: float) -> Visit:
    """Continues a training from `step` up to `most` times, with new random numbers each time, until it is clear whether
    over 90% of these continuations end like the training itself. Returns the step, and the share of continuations that
    ended so.

    An anytime-valid interval for this share decides when it is clear.

    Args:
        count: Trains the continuations with these numbers, from 1, and returns how many share the training's fate.
        error_rate: An upper bound on the chance that the verdict is wrong.
    """
    k, visit = 0, Visit(step, Rate(0, 0, 0.0, 1.0, mean=0.5))
    for first in range(1, most + 1, _AT_ONCE):
        numbers = range(first, min(first + _AT_ONCE, most + 1))
        k, n = k + count(numbers), numbers.stop - 1
        visit = Visit(step, Rate(n, k, *sequential_interval(k, n, error_rate)))
        if visit.verdict != "undecided":
            break
    return visit
