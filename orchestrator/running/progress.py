"""Shows the progress of a sweep: a live bar on a terminal, plain lines elsewhere."""

import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column

from attnsweep.orchestrator.analysis.labels import speed_label
from attnsweep.orchestrator.ledger.trial import complete_among
from attnsweep.orchestrator.storage.run_records import PackUnderWay, span
from attnsweep.search_spaces.replication import max_replicates
from attnsweep.search_spaces.sweep import Sweep

_PLAIN_SECONDS = 5.0


class ProgressDisplay:
    """`done`: rows of earlier runs."""

    def __init__(self, console: Console, spec: Sweep, done: pa.Table) -> None:
        self._console = console
        self._n_trials, self._n_trainings = spec.trials, spec.trials * max_replicates(spec.replicates)
        self._at_most = "" if isinstance(spec.replicates, int) else "at most "
        self._complete_before = frozenset(complete_among(done, spec.replicates))
        self._n_told, self._n_done = len(self._complete_before), int(done.num_rows)
        self._outcomes = Counter[str](done["outcome"].to_pylist())
        self._packs: Sequence[PackUnderWay] = ()
        self._n_before = self._work_before = float(self._n_done)
        self._started = self._last_line = time.monotonic()
        self._bar = Progress(
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=self._n_trainings, completed=self._n_done)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def committed(self, trials: Sequence[int], trainings: pa.Table | None) -> None:
        """The loop's `Follower`."""
        self._n_told += len({*trials} - self._complete_before)
        if trainings is None:
            return
        self._n_done += trainings.num_rows
        self._outcomes.update(trainings["outcome"].to_pylist())
        if self._n_told == self._n_trials:
            # No further replicates will be needed, so the total is known.
            self._n_trainings, self._at_most, self._packs = self._n_done, "", ()
        self._show(is_last=self._n_done == self._n_trainings)

    def heartbeat(self, waiting_for: str, packs: Sequence[PackUnderWay] = ()) -> None:
        """`waiting_for`: what is to come before any pack can train; empty if nothing is."""
        self._packs = packs
        if self._n_done == self._n_before == self._work_before and self._work > self._work_before:
            # The clock starts with the first report, so that compiling does not count.
            self._work_before, self._started = self._work, time.monotonic()
        self._show(f"waiting for {waiting_for}" if waiting_for else "")

    @property
    def seconds_left(self) -> float | None:
        """Estimated from the steps that packs have done, finished or not; `None` before the first."""
        rate = self._rate
        return max(self._n_trainings - self._work, 0.0) / rate if rate else None

    def _show(self, words: str = "", *, is_last: bool = False) -> None:
        now, seconds_left = time.monotonic(), self.seconds_left
        trials = f"trials {self._n_told}/{self._n_trials}"
        pace = f"{speed_label(self._rate)} trainings/s"
        to_come = "" if seconds_left is None else f"{self._at_most}{span(timedelta(seconds=seconds_left))} left"
        outcomes = ", ".join(f"{outcome} {count}" for outcome, count in self._outcomes.most_common())
        details = "  ".join(part for part in (pace, to_come, _in_words(self._packs), outcomes) if part)
        self._bar.update(
            self._task, completed=self._n_done, total=self._n_trainings, description=words or f"{trials}  {details}"
        )
        if not self._console.is_terminal and (is_last or now - self._last_line >= _PLAIN_SECONDS):
            self._last_line = now
            trainings = f"trainings {self._n_done}/{self._at_most}{self._n_trainings}"
            self._console.print(words or f"{trials}  {trainings}  {details}", soft_wrap=True, markup=False)

    @property
    def _work(self) -> float:
        """Trainings done, with the part of unfinished ones."""
        return self._n_done + sum(pack.n_trainings * pack.step / pack.n_steps for pack in self._packs)

    @property
    def _rate(self) -> float:
        elapsed = max(time.monotonic() - self._started, 1e-9)
        return max(self._work - self._work_before, 0.0) / elapsed


def _in_words(packs: Sequence[PackUnderWay]) -> str:
    """Such as `2 packs under way, step 120 to 400 of 500, accuracy 0.83 at the last probe`; empty if there are none."""
    if not packs:
        return ""
    steps = sorted(pack.step for pack in packs)
    reached = f"{steps[0]}" if steps[0] == steps[-1] else f"{steps[0]} to {steps[-1]}"
    words = f"{len(packs)} pack{'s' * (len(packs) > 1)} under way, step {reached} of {packs[0].n_steps}"
    measured = [(*pack.metric, pack.n_trainings) for pack in packs if pack.metric is not None]
    if not measured:
        return words
    mean = sum(value * n for _, value, n in measured) / sum(n for *_, n in measured)
    return f"{words}, {measured[0][0]} {mean:.3g} at the last probe"
