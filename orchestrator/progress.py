"""A sweep's course on stderr: a live bar on a terminal, plain lines elsewhere."""

import time
from collections import Counter
from types import TracebackType
from typing import Self

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_PLAIN_SECONDS = 5.0


class ProgressDisplay:
    """Shows trials, trainings, outcomes, trainings per second and the time left.

    Args:
        console: Where to write; its `is_terminal` decides between a live bar and plain lines.
        n_trials, n_trainings: The sweep's budget.
        n_done: Trainings that an earlier run has done.
    """

    def __init__(self, console: Console, n_trials: int, n_trainings: int, n_done: int) -> None:
        self._console = console
        self._n_trials, self._n_trainings = n_trials, n_trainings
        self._n_done_before = n_done
        self._n_done, self._n_told = n_done, 0
        self._outcomes: Counter[str] = Counter()
        self._started = self._last_line = time.monotonic()
        self._bar = Progress(
            TextColumn("trials {task.fields[trials]}"),
            BarColumn(),
            TextColumn("trainings"),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[outcomes]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=n_trainings, completed=n_done, trials="0", rate="", outcomes="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def rows_committed(self, trainings: pa.Table) -> None:
        """Counts what has reached the ledger."""
        self._n_done += trainings.num_rows
        self._outcomes.update(trainings["outcome"].to_pylist())
        self._bar.update(
            self._task,
            completed=self._n_done,
            trials=f"{self._n_told}/{self._n_trials}",
            rate=f"{self._rate():.0f}/s",
            outcomes=self._in_words(),
        )
        now = time.monotonic()
        is_last = self._n_done == self._n_trainings
        if not self._console.is_terminal and (is_last or now - self._last_line >= _PLAIN_SECONDS):
            self._last_line = now
            self._console.print(self._line(), soft_wrap=True)

    def trial_told(self, trial: int) -> None:
        """Counts a completed trial."""
        del trial
        self._n_told += 1

    def _line(self) -> str:
        left = (self._n_trainings - self._n_done) / max(self._rate(), 1e-9)
        return (
            f"trials {self._n_told}/{self._n_trials}  trainings {self._n_done}/{self._n_trainings}  "
            f"{self._rate():.0f} trainings/s  {left:.0f} s left  {self._in_words()}"
        )

    def _rate(self) -> float:
        elapsed = max(time.monotonic() - self._started, 1e-9)
        return (self._n_done - self._n_done_before) / elapsed

    def _in_words(self) -> str:
        return ", ".join(f"{outcome} {count}" for outcome, count in self._outcomes.most_common())
