"""Runs a sweep from start to summary: a new sweep, or one that is resumed."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
from rich.console import Console

from attnsweep.orchestrator.ledger.fragments import DamagedFileError
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.schema import schemas_of
from attnsweep.orchestrator.ledger.trial import JUDGING_COLUMNS
from attnsweep.orchestrator.ledger.writer import IS_FAILED, LedgerWriter
from attnsweep.orchestrator.running.entry import (
    Entry,
    as_it_ended,
    check_retry,
    check_rows,
    check_same,
    check_same_start,
    going_on,
    pinned,
    resolved,
)
from attnsweep.orchestrator.running.loop import Found, SweepLoop
from attnsweep.orchestrator.running.preflight.charges import check_charges
from attnsweep.orchestrator.running.preflight.engine_choice import Ahead, EngineChoice, engine_for
from attnsweep.orchestrator.running.preflight.few_steps import few_steps_warning
from attnsweep.orchestrator.running.preflight.sample import Sample
from attnsweep.orchestrator.running.preflight.sampler_cost import sampler_warning
from attnsweep.orchestrator.running.preflight.starts import check_starts
from attnsweep.orchestrator.running.preflight.stop_metrics import check_stop_metrics
from attnsweep.orchestrator.running.progress import ProgressDisplay, logging_progress
from attnsweep.orchestrator.running.self_check import replay_some
from attnsweep.orchestrator.running.sharding import (
    begin_shard,
    check_divisible,
    found_whole,
    home_of,
    refuse_extension,
    refuse_whole,
    resume_shards,
)
from attnsweep.orchestrator.running.signals import StopOnSignal
from attnsweep.orchestrator.running.study import Study
from attnsweep.orchestrator.running.summary import Summary, how_to_continue, summarize
from attnsweep.orchestrator.running.warm_start import warm_start
from attnsweep.orchestrator.storage.annotation import Annotation
from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.errors import PoolError, StoreError, SweepError
from attnsweep.orchestrator.storage.locks import LEASE_SECONDS, TakenError
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.run_records import Beacon, Replays, earlier_replays, take_promise
from attnsweep.orchestrator.storage.shards import Shard
from attnsweep.orchestrator.storage.stored_code import (
    check_unchanged,
    load_workload_of,
    named_files,
    offer_bases,
    sha256_of_files,
)
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.storage.sweep_record import Extension
from attnsweep.orchestrator.storage.user_state import trust
from attnsweep.orchestrator.terminal import PlainConsole
from attnsweep.orchestrator.tracking import processes
from attnsweep.orchestrator.tracking.projection import Projection
from attnsweep.orchestrator.tracking.store import tracking_uri
from attnsweep.orchestrator.training.messages import Pool, RunContext
from attnsweep.orchestrator.training.resources import Resources, StartPool, open_resources
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.user_code import UserCode, user_code_of

_NOTHING_TO_REMEMBER = Annotation()
_THIS_MACHINE = Resources()
PREDECESSOR_SECONDS = 1.1 * LEASE_SECONDS
"""How long a sweep in an object store can look taken after its driver was killed, with a margin."""
_LOOK_SECONDS = 5.0
_SHOW_SECONDS_PER_TRAINER = 2.5e-4
"""Seconds per trainer between two looks at the packs under way for the display, because counting thousands of packs
takes milliseconds."""


def run_sweep(
    spec: Sweep,
    where: PlaceName,
    resources: Resources = _THIS_MACHINE,
    console: Console | None = None,
    code: UserCode | None = None,
    annotation: Annotation = _NOTHING_TO_REMEMBER,
    warm_starts: Sequence[PlaceName] = (),
    shard: Shard | None = None,
) -> Summary:
    """Runs a new sweep in a new directory, or a new shard of one.

    Args:
        spec: The sweep to run.
        where: The sweep directory to make.
        resources: What to run on; default Ray, on this machine or at `RAY_ADDRESS`. `Resources(local=True)` trains in
            this process.
        console: Where progress is shown; default stderr, or the output of a notebook's cell.
        code: The user's code in place of the file that the spec names.
        annotation: A note and tags to store with the sweep.
        warm_starts: Finished sweeps whose trials the sampler gets before its first draw.
        shard: The trials that this driver owns; `None` for all. The shard's directory is below the sweep's.

    Returns:
        The summary of the sweep; its `finished` is false if a signal ended the run early.

    Raises:
        UserError: If the spec, directory, address or `MLFLOW_TRACKING_URI` is not usable. Nothing has been written.
        PoolError: If Ray does not start. Nothing has been written.
        SweepError: If the sweep cannot continue.
    """
    console = console or PlainConsole(stderr=True)
    session = _Session(resources, console)
    tracking_uri()
    workload = load_workload(spec.workload, code)
    parameters = workload.parameters
    home = home_of(where, shard)
    SweepDirectory.check_new(home, is_shard=shard is not None)
    if shard is not None:
        check_divisible(spec, shard)
    spec, base = resolved(spec, workload)
    code = user_code_of(workload)
    whole = None if shard is None else found_whole(where, shard, spec, code)
    if whole is None:
        SweepDirectory.check_new(where)
    told = warm_start(spec, parameters, warm_starts, partial(console.print, markup=False, soft_wrap=True))
    sample = Sample.of(spec, workload)
    check_charges(sample)
    check_stop_metrics(sample)
    check_starts(sample)
    warnings = [warning for warning in (few_steps_warning(sample), sampler_warning(spec)) if warning is not None]
    processes.start_ahead()
    ahead = Ahead.of(spec, workload, resources, partial(_engine, whole, spec, workload, resources, console))
    if code is not None:
        trust(code.sha256, console.print)
    with open_resources(resources, ahead.programs) as start_pool:
        for warning in warnings:
            console.print(warning, soft_wrap=True, markup=False, highlight=False)
        choice = ahead.choice.result()
        if choice.notice is not None:
            console.print(choice.notice, soft_wrap=True, markup=False, highlight=False)
        defaults = {
            name: parameter.default
            for name, parameter in parameters.declared().items()
            if name not in spec.parameters()
        }
        environment, files = Environment.current(workload, choice.engine), sha256_of_files(pinned(workload, spec))

        def create(place: PlaceName, shards: int = 0, shard: Shard | None = None) -> SweepDirectory:
            return SweepDirectory.create(
                place,
                spec,
                defaults,
                environment,
                code,
                files,
                annotation,
                base,
                engine_reason=choice.reason,
                warm_start=told,
                shards=shards,
                shard=shard,
            )

        if shard is None:
            directory = create(where)
            take_promise(directory)
        else:
            directory = begin_shard(where, shard, spec, code, environment, create)
        return session.run(directory, workload, start_pool, going_on(workload, environment))


def _engine(
    whole: SweepDirectory | None, spec: Sweep, workload: Workload[Any], resources: Resources, console: Console
) -> EngineChoice:
    """Chooses the engine of a new sweep, or takes the recorded engine of a sweep whose first shard has begun."""
    if whole is not None:
        return EngineChoice(whole.engine, whole.engine_reason)
    return engine_for(spec, workload, resources.engine, console)


def run_or_resume(
    spec: Sweep,
    where: PlaceName,
    resources: Resources,
    console: Console,
    code: UserCode | None = None,
    annotation: Annotation = _NOTHING_TO_REMEMBER,
    warm_starts: Sequence[PlaceName] = (),
    shard: Shard | None = None,
) -> Summary:
    """Runs a sweep, or continues it if the directory already holds it, so that a scheduler can repeat the same command.

    A finished sweep is summarized again without Ray, whatever code is installed by now. A driver that was killed on
    another machine may still hold the sweep's lock; this waits some minutes for it to expire.

    Args:
        spec, where, resources, console, code, annotation, warm_starts, shard: As for `run_sweep`.

    Raises:
        UserError: As for `run_sweep` and `resume_sweep`; also if the directory holds a sweep with another spec.
        PoolError, SweepError: As for `run_sweep` and `resume_sweep`.
    """
    home = home_of(where, shard)
    if not SweepDirectory.is_there(home):
        return run_sweep(spec, where, resources, console, code, annotation, warm_starts, shard)
    directory = SweepDirectory.open(home)
    refuse_whole(directory)
    workload = load_workload(spec.workload, code)
    offer_bases(directory)
    (spec, _), code = resolved(spec, workload, directory.bases), user_code_of(workload)
    if shard is not None:
        found_whole(where, shard, spec, code)
    check_same(spec, code, directory)
    check_same_start(directory, warm_starts)
    if code is not None:
        # The user has just given the same code files again, so the code counts as trusted.
        trust(code.sha256, console.print)
    if not directory.finished:
        return resume_sweep(directory.place, resources, console, patience=PREDECESSOR_SECONDS)
    tracking_uri()
    with open_resources(Resources(local=True)) as start_pool:
        return _Session(resources, console, PREDECESSOR_SECONDS).run(directory, workload, start_pool, as_it_ended)


def resume_sweep(
    where: PlaceName,
    resources: Resources = _THIS_MACHINE,
    console: Console | None = None,
    *,
    accept_drift: bool = False,
    patience: float = 0.0,
    more_trials: int = 0,
    more_replicates: int = 0,
    replicates: int = 0,
    retry_failed: bool = False,
) -> Summary:
    """Continues an interrupted sweep; a finished one is only summarized again.

    Args:
        where: The sweep directory.
        resources, console: As for `run_sweep`.
        accept_drift: Continue even if versions or code differ from those that have trained so far.
        patience: Seconds to wait for another process that holds the sweep.
        more_trials: Trials to add to the sweep, finished or not.
        more_replicates: Replicates to add to every trial. Trials that have ended keep the value that the study has
            recorded.
        replicates: Replicates that every trial is to have at least, instead of `more_replicates`. Those that another
            process has added meanwhile are not added again.
        retry_failed: Whether to train failed trainings again. Trials that have ended keep the value that the study has
            recorded.

    Raises:
        UserError: If there is no sweep, its workload or a file that it names is missing or changed, the user's code in
            it is not trusted, versions or code differ and `accept_drift` is not given, or another process works on it.
        SweepError: If the sweep cannot continue.
    """
    session = _Session(resources, console or PlainConsole(stderr=True), patience, retry_failed=retry_failed)
    tracking_uri()
    directory = SweepDirectory.open(where)

    def more(found: SweepDirectory) -> Extension:
        there = found.spec.replicates
        return Extension(more_trials, max(more_replicates, replicates - there if isinstance(there, int) else 0))

    if more(directory):
        refuse_extension(directory)
    if retry_failed:
        check_retry(directory.spec)
    if directory.shards:
        resume_shard = partial(resume_sweep, resources=resources, console=console, accept_drift=accept_drift)
        return resume_shards(
            directory, partial(resume_shard, retry_failed=retry_failed), session.console, everything=retry_failed
        )
    workload = load_workload_of(directory)
    environment = Environment.current(workload, directory.engine)
    enter = going_on(workload, environment, more, accept_drift=accept_drift)
    spec = enter(directory).spec
    check_unchanged(directory, pinned(workload, spec))
    if more(directory) or retry_failed or not directory.finished:
        check_starts(Sample.of(spec, workload))
    processes.start_ahead()
    ahead = Ahead.of(
        directory.spec, workload, resources, lambda: EngineChoice(directory.engine, directory.engine_reason)
    )
    try:
        with open_resources(resources, ahead.programs) as start_pool:
            return session.run(directory, workload, start_pool, enter)
    except PoolError as error:
        raise SweepError(str(error), directory.place) from error


@dataclass(frozen=True)
class _OpenSweep:
    """A sweep whose ledger and study are open for writing by this process alone.

    Attributes:
        recorded: The sweep as recorded.
        directory: The sweep as this run continues it; `record` makes the record agree with it.
        rows: The rows of earlier runs in `trainings`, with the columns that the loop and the display need.
    """

    recorded: SweepDirectory
    directory: SweepDirectory
    workload: Workload[Any]
    study: Study
    writer: LedgerWriter
    rows: pa.Table

    def record(self) -> None:
        """Writes this run's changes to the sweep's record. It is called after all checks, so that a refused run
        changes nothing."""
        self.writer.confirm()
        self.recorded.record_as(self.directory)
        if self.retries_failed:
            self.writer.take_out_failed()

    @property
    def is_more(self) -> bool:
        """Whether this run adds trials or replicates to the sweep, or trains failed trainings again."""
        return self.directory.spec != self.recorded.spec or self.retries_failed

    @property
    def retries_failed(self) -> bool:
        return self.directory.retried != self.recorded.retried


@dataclass
class _Session:
    """One run of a sweep, from opening its directory to its summary.

    Attributes:
        resources: What the run uses: trainers, engine, pack size.
        console: Where progress is shown.
        patience: Seconds to wait for another process that holds the sweep.
        began: When the run began, on the monotonic clock.
        finished: Whether the budget of the sweep is spent.
        replays: The results of the self-check; `None` before there was one.
        retry_failed: Whether to train failed trainings again.
        stop: Whether the user has asked to stop.
    """

    resources: Resources
    console: Console
    patience: float = 0.0
    began: float = field(default_factory=time.monotonic)
    finished: bool = False
    replays: Replays | None = None
    retry_failed: bool = False
    stop: StopOnSignal = field(default_factory=StopOnSignal)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def seconds_to_end(self) -> float | None:
        """The seconds that ending the run may take; `None` (no limit) if nobody stopped the run."""
        return None if self.finished and not self.stop.requested else self.stop.seconds_left

    def run(
        self,
        directory: SweepDirectory,
        workload: Workload[Any],
        start_pool: StartPool,
        enter: Entry,
    ) -> Summary:
        """Opens the sweep, trains its remaining trainings, and summarizes it.

        Args:
            directory: The sweep.
            workload: The sweep's workload.
            start_pool: Starts the trainers.
            enter: The entry that checks the sweep's record and derives from it the sweep to train.
        """
        try:
            with self._opened(directory, workload, enter) as sweep:
                return self._train(sweep, start_pool)
        except (StoreError, DamagedFileError, PoolError) as error:
            # The storage and the pool worked when the sweep began, so this error is not due to the spec.
            raise SweepError(str(error), directory.place) from error
        except KeyboardInterrupt:
            # This KeyboardInterrupt comes from a second Ctrl-C, or from a Ctrl-C before the sweep starts or while it
            # ends. No summary is printed.
            self.console.print(how_to_continue(directory), soft_wrap=True, markup=False)
            raise

    @contextmanager
    def _opened(self, directory: SweepDirectory, workload: Workload[Any], enter: Entry) -> Iterator[_OpenSweep]:
        with self._writer(lambda: LedgerWriter(directory.place, schemas_of(workload), directory.spec_sha256)) as writer:
            # The sweep's record is read again under the writer's lock, because another run may have changed it before
            # the lock was taken.
            recorded = SweepDirectory.open(directory.place)
            directory = enter(recorded)
            for message in writer.set_aside.values():
                self.console.print(message)
            study = Study(directory)
            rows = Ledger(directory.place).trainings(columns=["sweep", *JUDGING_COLUMNS])
            check_rows(directory, study, rows)
            if self.retry_failed:
                directory, rows = self._retrying(directory, rows)
            yield _OpenSweep(recorded, directory, workload, study, writer, rows)

    def _retrying(self, directory: SweepDirectory, rows: pa.Table) -> tuple[SweepDirectory, pa.Table]:
        """Returns the sweep with its failed trainings queued again, and the rows of all its other trainings."""
        failed = rows.filter(IS_FAILED)
        self.console.print(f"{failed.num_rows:,} failed trainings to train again", markup=False)
        names = zip(failed["trial"].to_pylist(), failed["replicate"].to_pylist(), strict=True)
        return directory.retrying(names), rows.filter(~IS_FAILED)

    def _writer(self, open_writer: Callable[[], LedgerWriter]) -> LedgerWriter:
        """Opens the ledger for writing. If another process holds the lock, waits until the lock is released or its
        holder is found dead."""
        until = self.began + self.patience
        is_said = False
        while True:
            try:
                return open_writer()
            except TakenError as taken:
                if time.monotonic() >= until:
                    raise
                if not is_said:
                    self.console.print(f"{taken}; waiting for up to {self.patience:g} s", markup=False, soft_wrap=True)
                    is_said = True
            time.sleep(_LOOK_SECONDS)

    def _train(self, sweep: _OpenSweep, start_pool: StartPool) -> Summary:
        self.replays = None if sweep.is_more else earlier_replays(sweep.recorded)
        with ExitStack() as at_last:
            # MLflow's process is closed at the end of this block, so that it goes on logging while Ray shuts down and
            # the ledger is read.
            projection = self._train_to_end(sweep, start_pool, at_last)
            summary = summarize(
                sweep.directory,
                refused=sweep.study.refused,
                finished=self.finished,
                seconds=self.seconds,
                n_before=sweep.rows.num_rows,
                replays=self.replays,
            )
        return replace(summary, mlflow=projection.to_open(), in_mlflow=projection.problem is None)

    def _train_to_end(self, sweep: _OpenSweep, start_pool: StartPool, at_last: ExitStack) -> Projection:
        """Trains until the budget is spent or the user stops the run. Then closes everything, in the reverse order of
        opening.

        Args:
            sweep: The sweep.
            start_pool: Starts its trainers.
            at_last: Closes the returned projection later.
        """
        directory = sweep.directory
        files = (*named_files(pinned(sweep.workload, directory.spec)), *directory.bases)
        every = directory.spec.one_probe_in()
        context = RunContext(directory.sweep, directory.environment, files, directory.engine, every)
        with ExitStack() as opened:
            pool = opened.enter_context(closing(start_pool(sweep.workload, context)))
            # The sweep's record is written before MLflow's process starts, because that process reads it.
            sweep.record()
            projection = Projection(directory)
            at_last.callback(lambda: projection.close(self.seconds_to_end, logging_progress(self.console)))
            opened.callback(lambda: projection.end_soon(in_haste=self.seconds_to_end is not None))
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
            opened.callback(self._end_run, sweep, beacon)
            opened.enter_context(self.stop)
            opened.enter_context(display)
            _print_found(self.console, loop.resume(sweep.rows))
            looked = 0.0

            def should_stop() -> bool:
                nonlocal looked
                for notice in pool.notices():
                    self.console.print(notice, soft_wrap=True, markup=False)
                if time.monotonic() - looked > _SHOW_SECONDS_PER_TRAINER * pool.n_trainers:
                    _show_progress(display, beacon, pool, loop, projection.lag)
                    looked = time.monotonic()
                return self.stop.requested

            self.finished = loop.run(should_stop)
            if self.finished and self.replays is None:
                beacon.show("replaying some of the trainings", loop.n_asked, ())
                self.replays = replay_some(loop.directory, sweep.workload, pool, lambda: self.stop.requested)
        return projection

    def _end_run(self, sweep: _OpenSweep, beacon: Beacon) -> None:
        """Makes the study durable and records the end of the run, unless another process has taken over the sweep."""
        sweep.writer.confirm()
        sweep.study.save()
        sweep.directory.record_run(finished=self.finished, seconds=self.seconds)
        # `progress.json` is written last, because it belongs to another driver if that driver has taken over the sweep.
        beacon.end()


def _print_found(console: Console, state: Found) -> None:
    if state.n_kept or state.n_told or state.n_queued:
        queued = f"{state.n_queued} trainings to train"
        if state.n_from_checkpoint:
            queued += f", {state.n_from_checkpoint} of them from a checkpoint"
        words = f"found {state.n_kept} trainings, reported {state.n_told} trials to Optuna, {queued}"
        console.print(words, markup=False)


def _show_progress(display: ProgressDisplay, beacon: Beacon, pool: Pool, loop: SweepLoop, lag: str) -> None:
    """Shows the sweep's state on the console, and writes it to a file for `attnsweep status`."""
    waiting_for = pool.waiting_for
    packs = loop.under_way()
    display.heartbeat(waiting_for, packs)
    beacon.show(f"waiting for {waiting_for}" if waiting_for else "training", loop.n_asked, packs, lag)
