"""One run of a sweep that has a directory, from opening to summary."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from rich.console import Console

from attnsweep.orchestrator.ledger.fragments import DamagedFileError
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.schema import schemas_of
from attnsweep.orchestrator.ledger.trial import JUDGING_COLUMNS
from attnsweep.orchestrator.ledger.writer import IS_FAILED, LedgerWriter
from attnsweep.orchestrator.running.entry import Entry, check_rows, pinned
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.outlook import Outlook
from attnsweep.orchestrator.running.progress import ProgressDisplay, logging_progress
from attnsweep.orchestrator.running.self_check import replay_some
from attnsweep.orchestrator.running.signals import StopOnSignal
from attnsweep.orchestrator.running.study import Study, open_study
from attnsweep.orchestrator.running.summary import Summary, how_to_continue, summarize
from attnsweep.orchestrator.storage.errors import PoolError, StoreError, SweepError
from attnsweep.orchestrator.storage.locks import TakenError
from attnsweep.orchestrator.storage.run_records import Beacon, earlier_replays, record_seconds
from attnsweep.orchestrator.storage.stored_code import named_files
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.projection import Projection
from attnsweep.orchestrator.training.messages import Pool, RunContext
from attnsweep.orchestrator.training.resources import Resources, StartPool
from attnsweep.workloads.engine.contract import Workload

_LOOK_SECONDS = 5.0
SHOW_SECONDS_PER_TRAINER = 2.5e-4
"""Seconds per trainer between two looks at the packs in training for the display, because counting thousands of packs
takes milliseconds."""


@dataclass(frozen=True)
class _OpenSweep:
    """A sweep that this process alone may write to.

    Attributes:
        directory: The sweep as this run continues it; the method `record` stores it.
        rows: The rows of earlier runs in `trainings`, with the columns that the loop and the display need.
    """

    recorded: SweepDirectory
    directory: SweepDirectory
    workload: Workload[Any]
    study: Study
    writer: LedgerWriter
    rows: pa.Table

    def record(self) -> None:
        """Writes this run's changes to the sweep's record, after all checks, so that a refused run changes nothing."""
        self.writer.confirm()
        self.recorded.record_as(self.directory)
        if self.retries_failed:
            self.writer.take_out_failed()

    @property
    def retries_failed(self) -> bool:
        return self.directory.retried != self.recorded.retried


@dataclass
class OneRun:
    """One run of a sweep.

    Attributes:
        patience: Seconds to wait for another process that holds the sweep.
    """

    resources: Resources
    console: Console
    patience: float = 0.0
    retry_failed: bool = False
    outlook: Outlook | None = None
    _began: float = field(init=False, default_factory=time.monotonic)
    _finished: bool = field(init=False, default=False)
    _stop: StopOnSignal = field(init=False, default_factory=StopOnSignal)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def _seconds_to_end(self) -> float | None:
        return None if self._finished and not self._stop.requested else self._stop.seconds_left

    def run(self, directory: SweepDirectory, workload: Workload[Any], start_pool: StartPool, enter: Entry) -> Summary:
        """Trains the sweep's remaining trainings. `enter` checks its record and derives from it the sweep to train.

        Raises:
            SweepError: If the sweep cannot continue.
        """
        try:
            with self._opened(directory, workload, enter) as sweep:
                return self._train(sweep, start_pool)
        except (StoreError, DamagedFileError, PoolError) as error:
            # The fault lies with the storage or the trainers and not with the sweep. Once it is repaired, the sweep can
            # be continued, and the SweepError says so.
            raise SweepError(str(error), directory.place) from error
        except KeyboardInterrupt:
            # A KeyboardInterrupt gets here on a second Ctrl-C, or on a Ctrl-C before the sweep starts or while it ends.
            # In these cases only the command that continues the sweep is printed, and no summary.
            self.console.print(how_to_continue(directory), soft_wrap=True, markup=False)
            raise

    @contextmanager
    def _opened(self, directory: SweepDirectory, workload: Workload[Any], enter: Entry) -> Iterator[_OpenSweep]:
        with self._writer(directory, workload) as writer:
            # The sweep's record is read again after this process has taken the lock, because another run may have
            # changed it before.
            recorded = SweepDirectory.open(directory.place)
            directory = enter(recorded)
            for message in writer.set_aside.values():
                self.console.print(message)
            study = open_study(directory)
            rows = Ledger(directory.place).trainings(columns=["sweep", *JUDGING_COLUMNS])
            check_rows(directory, rows)
            if self.retry_failed:
                failed = rows.filter(IS_FAILED)
                self.console.print(f"{failed.num_rows:,} failed trainings to train again", markup=False)
                names = zip(failed["trial"].to_pylist(), failed["replicate"].to_pylist(), strict=True)
                directory, rows = directory.retrying(names), rows.filter(~IS_FAILED)
            yield _OpenSweep(recorded, directory, workload, study, writer, rows)

    def _writer(self, directory: SweepDirectory, workload: Workload[Any]) -> LedgerWriter:
        is_said = False
        while True:
            try:
                return LedgerWriter(directory.place, schemas_of(workload), directory.spec_sha256)
            except TakenError as taken:
                if self._seconds >= self.patience:
                    raise
                if not is_said:
                    self.console.print(f"{taken}; waiting for up to {self.patience:g} s", markup=False, soft_wrap=True)
                    is_said = True
            time.sleep(_LOOK_SECONDS)

    def _train(self, sweep: _OpenSweep, start_pool: StartPool) -> Summary:
        directory = sweep.directory
        is_as_before = directory.spec == sweep.recorded.spec and not sweep.retries_failed
        replays = earlier_replays(sweep.recorded) if is_as_before else None
        with ExitStack() as at_last:
            with ExitStack() as opened:
                pool = opened.enter_context(closing(start_pool(sweep.workload, _context(sweep))))
                # The sweep's record is written before MLflow's process starts, because that process reads it.
                sweep.record()
                # MLflow's process is closed last, so that it can go on logging while Ray shuts down and the ledger is
                # read.
                projection = Projection(directory)
                at_last.callback(lambda: projection.close(self._seconds_to_end, logging_progress(self.console)))
                opened.callback(lambda: projection.end_soon(in_haste=self._seconds_to_end is not None))
                display, beacon = ProgressDisplay(self.console, directory.own_spec, sweep.rows), Beacon(directory.place)
                loop = SweepLoop(
                    directory,
                    sweep.workload,
                    sweep.study,
                    sweep.writer,
                    pool,
                    pack_size=self.resources.pack_size,
                    max_failures=self.resources.max_failures,
                    followers=(display, projection),
                )
                opened.callback(self._end, sweep, beacon)
                opened.enter_context(self._stop)
                opened.enter_context(display)
                if self.outlook is not None:
                    for line in self.outlook.lines(pool.n_trainers, directory.engine):
                        self.console.print(line, soft_wrap=True, markup=False, highlight=False)
                if words := loop.resume(sweep.rows).in_words():
                    self.console.print(words, markup=False)
                looked = 0.0

                def should_stop() -> bool:
                    nonlocal looked
                    for notice in pool.notices():
                        self.console.print(notice, soft_wrap=True, markup=False)
                    if time.monotonic() - looked > SHOW_SECONDS_PER_TRAINER * pool.n_trainers:
                        show_progress(display, beacon, pool, loop, projection.lag)
                        looked = time.monotonic()
                    return self._stop.requested

                self._finished = loop.run(should_stop)
                if loop.end_reason:
                    self.console.print(f"ended early: {loop.end_reason}", soft_wrap=True, markup=False)
                if self._finished and replays is None:
                    beacon.show("replaying some of the trainings", loop.n_asked, ())
                    replays = replay_some(loop.directory, sweep.workload, pool, lambda: self._stop.requested)
            summary = summarize(
                directory,
                refused=sweep.study.refused,
                finished=self._finished,
                seconds=self._seconds,
                n_before=sweep.rows.num_rows,
                replays=replays,
                n_ended_at_median=sweep.study.n_ended_at_median(),
            )
        record_seconds(directory.place, self._seconds)
        in_mlflow = projection.problem is None
        return replace(summary, mlflow=projection.to_open(), in_mlflow=in_mlflow, seconds=self._seconds)

    def _end(self, sweep: _OpenSweep, beacon: Beacon) -> None:
        """Saves the study and records the run's end, unless another process has taken over the sweep."""
        sweep.writer.confirm()
        sweep.study.save()
        sweep.directory.record_run(finished=self._finished, seconds=self._seconds)
        # `progress.json` is written last. If another driver has taken over the sweep, the file is that driver's and
        # must not be overwritten: one of the calls above then raises an error, and this line is not reached.
        beacon.end()


def _context(sweep: _OpenSweep) -> RunContext:
    directory = sweep.directory
    files = tuple(named_files(pinned(sweep.workload, directory.spec)))
    every = directory.spec.one_probe_in()
    return RunContext(directory.sweep, directory.environment, files, directory.engine, every)


def show_progress(display: ProgressDisplay, beacon: Beacon, pool: Pool, loop: SweepLoop, lag: str) -> None:
    """Shows the sweep's state on the console, and writes it for `attnsweep status`.

    Args:
        lag: How far MLflow is behind, in words; empty if it is not behind.
    """
    waiting_for, packs = pool.waiting_for, loop.under_way()
    display.heartbeat(waiting_for, packs)
    doing = f"waiting for {waiting_for}" if waiting_for else "training"
    beacon.show(doing, loop.n_asked, packs, lag, display.seconds_left)
