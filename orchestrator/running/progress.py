"""Shows the progress of a sweep: a live bar on a terminal and in a notebook's cell, plain lines elsewhere."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from attnsweep.orchestrator.analysis.labels import speed_label
from attnsweep.orchestrator.analysis.rates.intervals import pooling
from attnsweep.orchestrator.ledger.trial import complete_among
from attnsweep.orchestrator.storage.run_records import PackUnderWay, packs_in_words, span
from attnsweep.orchestrator.terminal import plain
from attnsweep.search_spaces.replication import most_wanted
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.vocabulary import UNJUDGED_OUTCOMES

_PLAIN_SECONDS = 5.0
_RATE_SECONDS = 2.0
_CELL_SECONDS = 0.25
"""Seconds between two drawings of the bar in a notebook, because each is a message to the browser."""


class _TwoLines(Progress):
    """A progress bar with a line of text below it, because a line of 80 columns is too short for bar and text."""

    words = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        # Control characters are removed here, because a notebook uses Rich's own console, which would show them.
        yield Text(plain(self.words), no_wrap=True, overflow="ellipsis")


class _Cell:
    """A progress bar in the output of a notebook cell, redrawn in place."""

    def __init__(self, bar: Progress) -> None:
        # IPython is imported only here, because attnsweep does not depend on IPython.
        from IPython.display import display

        self._shown = bar
        self._last = time.monotonic()
        self._handle: Any = display(bar, display_id=True)

    def draw(self, *, at_once: bool = False) -> None:
        if at_once or time.monotonic() - self._last >= _CELL_SECONDS:
            self._last = time.monotonic()
            self._handle.update(self._shown)


class ProgressDisplay:
    """Trials, trainings, outcomes, the first metric, trainings per second, the time left.

    A terminal or a notebook's cell gets a live bar, any other console plain lines. `done`: rows of earlier runs.
    """

    def __init__(self, console: Console, spec: Sweep, done: pa.Table) -> None:
        self._console = console
        self._n_trials, self._n_trainings = spec.trials, spec.trials * most_wanted(spec.replicates)
        self._at_most = "" if isinstance(spec.replicates, int) else "at most "
        self._n_done: int = done.num_rows
        self._n_done_before = self._work_before = float(done.num_rows)
        self._complete_before = frozenset(complete_among(done, spec.replicates))
        self._n_told = len(self._complete_before)
        self._outcomes: Counter[str] = Counter()
        self._pooled, self._stuck, self._rated = pooling(spec), "", -math.inf
        # For each running trial, `_open` holds two numbers: how many of its trainings have been judged (stuck or not),
        # and how many are stuck. There may be millions of ended trials, so `_ended` only holds how many trials have
        # each pair of numbers.
        self._open: dict[int, tuple[int, int]] = {}
        self._ended: Counter[tuple[int, int]] = Counter()
        self._to_close = [*self._complete_before]
        self._count(done)
        self._started = self._last_line = time.monotonic()
        self._packs: Sequence[PackUnderWay] = ()
        self._bar = _TwoLines(
            TextColumn(f"trainings, {self._at_most}" if self._at_most else "trainings"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=self._n_trainings, completed=self._n_done, rate="", left="")
        self._bar.words = self._in_words()
        self._cell: _Cell | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        if self._console.is_jupyter:
            self._cell = _Cell(self._bar)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        self._draw_cell(at_once=True)

    def rows_committed(self, trainings: pa.Table) -> None:
        self._n_done += trainings.num_rows
        if self._n_told == self._n_trials:
            # The results of all trials have been reported to the study, so no further replicates will be needed and the
            # total number of trainings is known.
            self._n_trainings, self._at_most, self._packs = self._n_done, "", ()
        self._count(trainings)
        self._update(self._in_words())
        if self._n_done == self._n_trainings:
            self._print_line(self._line())

    def _count(self, trainings: pa.Table) -> None:
        outcomes = trainings["outcome"].to_pylist()
        self._outcomes.update(outcomes)
        for trial, outcome, stuck in zip(
            trainings["trial"].to_pylist(), outcomes, trainings["stuck"].to_pylist(), strict=True
        ):
            if outcome not in UNJUDGED_OUTCOMES:
                n, k = self._open.get(trial, (0, 0))
                self._open[trial] = n + 1, k + stuck
        self._ended.update(self._open.pop(trial) for trial in self._to_close if trial in self._open)
        self._to_close = []
        is_due = time.monotonic() - self._rated >= _RATE_SECONDS or self._n_done == self._n_trainings
        if (self._open or self._ended) and is_due:
            self._rated = time.monotonic()
            alike = self._ended + Counter(self._open.values())
            counts = np.repeat(np.array([*alike]), np.array([*alike.values()]), axis=0)
            share, low, high = self._pooled(counts).interval or (0.0, 0.0, 1.0)
            self._stuck = f"stuck {share:.2f} [{low:.2f}, {high:.2f}]"

    def trial_told(self, trial: int) -> None:
        """Counts a trial unless an earlier run had completed it."""
        if trial not in self._complete_before:
            self._n_told += 1
            self._to_close.append(trial)

    def heartbeat(self, waiting_for: str, packs: Sequence[PackUnderWay] = ()) -> None:
        """Updates the progress bar or, without a bar, prints a line now and then.

        Args:
            waiting_for: What the sweep waits for before any pack can train; empty if it waits for nothing.
        """
        self._packs = packs
        if self._n_done == self._n_done_before == self._work_before and self._work > self._work_before:
            # Time counts from the first report on, so that what comes before it, such as compiling, does not.
            self._work_before, self._started = self._work, time.monotonic()
        self._update(f"waiting for {waiting_for}" if waiting_for else self._in_words())
        if time.monotonic() - self._last_line >= _PLAIN_SECONDS:
            self._print_line(f"waiting for {waiting_for}" if waiting_for else self._line())

    @property
    def seconds_left(self) -> float | None:
        """Estimated from the steps that packs have done, finished or not; `None` before the first."""
        rate = self._rate()
        return max(self._n_trainings - self._work, 0.0) / rate if rate else None

    def _update(self, words: str) -> None:
        self._bar.update(
            self._task,
            completed=self._n_done,
            total=self._n_trainings,
            rate=f"{speed_label(self._rate())}/s",
            left=self._left(),
        )
        self._bar.words = words
        self._draw_cell()

    def _print_line(self, line: str) -> None:
        self._last_line = time.monotonic()
        if not self._console.is_terminal and self._cell is None:
            self._console.print(line, soft_wrap=True, markup=False)

    def _draw_cell(self, *, at_once: bool = False) -> None:
        if self._cell is not None:
            self._cell.draw(at_once=at_once)

    def _line(self) -> str:
        counts = f"trials {self._n_told}/{self._n_trials}  trainings {self._n_done}/{self._at_most}{self._n_trainings}"
        pace = f"{speed_label(self._rate())} trainings/s"
        return "  ".join(part for part in (counts, pace, self._left(), self._details()) if part)

    def _left(self) -> str:
        seconds = self.seconds_left
        return "" if seconds is None else f"{self._at_most}{span(timedelta(seconds=seconds))} left"

    def _in_words(self) -> str:
        return f"trials {self._n_told}/{self._n_trials}  {self._details()}"

    def _details(self) -> str:
        outcomes = ", ".join(f"{outcome} {count}" for outcome, count in self._outcomes.most_common())
        return "  ".join(part for part in (self._stuck, packs_in_words(self._packs), outcomes) if part)

    @property
    def _work(self) -> float:
        """The number of trainings done, of unfinished ones the part that is done."""
        return self._n_done + sum(pack.n_trainings * pack.step / pack.n_steps for pack in self._packs)

    def _rate(self) -> float:
        """Trainings per second, of unfinished ones the part that is done."""
        elapsed = max(time.monotonic() - self._started, 1e-9)
        return max(self._work - self._work_before, 0.0) / elapsed


def logging_progress(console: Console) -> Callable[[int, int], None]:
    """Returns a callback `(n_logged, n_missing)` that prints now and then how many trials MLflow has."""
    last_line = time.monotonic()

    def tell(n_logged: int, n_missing: int) -> None:
        nonlocal last_line
        if time.monotonic() - last_line >= _PLAIN_SECONDS:
            last_line = time.monotonic()
            console.print(f"MLflow: {n_logged}/{n_missing} trials logged", markup=False)

    return tell
