"""Runs or resumes a sweep, from the checks of the user's input to the summary at the end."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, chdir, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from rich.console import Console

from attnsweep.orchestrator.ledger.fragments import DamagedFileError
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.schema import schemas_of
from attnsweep.orchestrator.ledger.trial import JUDGING_COLUMNS
from attnsweep.orchestrator.ledger.writer import IS_FAILED, LedgerWriter
from attnsweep.orchestrator.running.engine_choice import engine_for
from attnsweep.orchestrator.running.entry import (
    check_drift,
    check_rows,
    check_same,
    check_shard,
    pinned,
    resolved,
)
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.preflight import check_new, check_starts
from attnsweep.orchestrator.running.progress import ProgressDisplay
from attnsweep.orchestrator.running.self_check import replay_some
from attnsweep.orchestrator.running.signals import StopOnSignal
from attnsweep.orchestrator.running.study import open_study
from attnsweep.orchestrator.running.summary import Summary, how_to_continue, summarize
from attnsweep.orchestrator.running.warm_start import warm_start
from attnsweep.orchestrator.storage.annotation import Annotation
from attnsweep.orchestrator.storage.environment import Environment, current_provenance
from attnsweep.orchestrator.storage.errors import PoolError, StoreError, SweepError, TakenError, in_words
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.run_records import Beacon
from attnsweep.orchestrator.storage.shards import WHOLE, Shard
from attnsweep.orchestrator.storage.stored_code import (
    check_unchanged,
    edited_since,
    load_workload_of,
    named_files,
    sha256_of_files,
)
from attnsweep.orchestrator.storage.sweep_directory import Extension, SweepDirectory
from attnsweep.orchestrator.terminal import PlainConsole
from attnsweep.orchestrator.tracking.following import Following
from attnsweep.orchestrator.tracking.store import tracking_uri
from attnsweep.orchestrator.training.messages import RunContext
from attnsweep.orchestrator.training.pools import StartPool, open_resources
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces.replication import max_replicates
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.user_code import UserCode, refuse_while_loading, user_code_of

_NO_ANNOTATION = Annotation()
_DEFAULT_RESOURCES = Resources()
PREDECESSOR_SECONDS = 330.0
"""How long the claim of a killed driver on a sweep in an object store lasts, with a margin."""
_RETRY_SECONDS = 5.0
_SHOW_SECONDS = 0.25


def run_sweep(
    spec: Sweep,
    where: PlaceName,
    resources: Resources = _DEFAULT_RESOURCES,
    console: Console | None = None,
    code: UserCode | None = None,
    annotation: Annotation = _NO_ANNOTATION,
    warm_starts: Sequence[PlaceName] = (),
    shard: Shard = WHOLE,
    *,
    or_resume: bool = False,
) -> Summary:
    """Runs a new sweep in a new directory.

    Args:
        resources: By default Ray, on this machine or at `RAY_ADDRESS`. `Resources(local=True)` trains in this process.
        console: Where progress is shown; by default stderr, or the output of a notebook's cell.
        code: The user's code in place of the file that the spec names.
        warm_starts: Finished sweeps whose trials the sampler is told before its first draw.
        shard: The trials that this driver trains.
        or_resume: Continue the sweep if the directory holds it, so that a scheduler can repeat the same command. The
            call then waits some minutes for the lock of a driver that was killed on another machine.

    Returns:
        A summary whose `finished` is false if a signal ended the run early.

    Raises:
        UserError: If the spec, directory, address or `MLFLOW_TRACKING_URI` is not usable. Nothing has been written.
        PoolError: If Ray does not start. Nothing has been written.
        SweepError: If the sweep cannot continue.
    """
    run = _Run(resources, console or PlainConsole(stderr=True))
    tracking_uri()
    refuse_while_loading()
    workload = load_workload(spec.workload, code)
    if or_resume and SweepDirectory.is_there(where):
        found = SweepDirectory.open(where)
        check_same(resolved(spec, workload), user_code_of(workload), shard, warm_starts, found)
        return resume_sweep(found.place, resources, console, patience=PREDECESSOR_SECONDS)
    SweepDirectory.check_new(where)
    check_shard(spec, shard)
    spec, code = resolved(spec, workload), user_code_of(workload)
    earlier_trials = warm_start(spec, workload.parameters, warm_starts, run.say)
    # As `resume` will have it: from a copy of the user's code, and without modules of the working directory.
    with chdir("/"):
        workload = workload if code is None else load_workload(spec.workload, replace(code, is_apart=True))
        check_new(spec, workload)
    engine, reason = engine_for(spec, workload, resources.engine, run.say)
    with open_resources(resources) as start_pool:
        if engine == "compiled":
            run.say("training in compiled steps: compiling takes some seconds, once for each shape and machine")
        environment, declared = Environment.current(engine), workload.parameters.declared()
        directory = SweepDirectory.create(
            where,
            spec,
            {name: each.default for name, each in declared.items() if name not in spec.parameters()},
            code,
            earlier_trials,
            environments={environment.id: environment},
            files=sha256_of_files(pinned(workload, spec)),
            provenance=current_provenance() | {"engine_reason": reason, "code_folder": code.folder if code else None},
            shard=shard,
            **vars(annotation),
        )
        with _resumable(directory, run), _writer(directory, workload, run) as writer:
            rows = Ledger(directory.place).trainings(columns=["sweep", *JUDGING_COLUMNS])
            return _train(run, directory, directory, workload, writer, rows, start_pool)


def resume_sweep(
    where: PlaceName,
    resources: Resources = _DEFAULT_RESOURCES,
    console: Console | None = None,
    *,
    accept_drift: bool = False,
    patience: float = 0.0,
    more_trials: int = 0,
    more_replicates: int = 0,
    replicates: int = 0,
    retry_failed: bool = False,
) -> Summary:
    """Continues an interrupted sweep. A finished one to which nothing is added is summarized again, without Ray.

    Args:
        accept_drift: Continue even if versions differ from those of the last run.
        patience: Seconds to wait for another process that holds the sweep.
        more_trials: Trials to add to the sweep, finished or not.
        more_replicates: Replicates to add to every trial. Trials that have ended keep their value.
        replicates: Replicates that every trial is to have at least, instead of `more_replicates`.
        retry_failed: Train failed trainings again. Trials that have ended keep their value.

    Raises:
        UserError: If there is no sweep, its workload or a file that it names is missing or changed, its stored code is
            damaged, versions differ without `accept_drift`, it cannot be extended so, or another process works on it.
        SweepError: If the sweep cannot continue.
    """
    run = _Run(resources, console or PlainConsole(stderr=True), patience)
    tracking_uri()
    refuse_while_loading()
    found = SweepDirectory.open(where)
    workload = load_workload_of(found)
    with _resumable(found, run), _writer(found, workload, run) as writer:
        # What another run may have changed is read once this one has the lock.
        stored = SweepDirectory.open(found.place)
        rows = Ledger(stored.place).trainings(columns=["sweep", *JUDGING_COLUMNS])
        check_rows(stored, rows)
        if edited := edited_since(stored):
            run.say(edited)
        n_now = stored.spec.replicates
        missing = replicates - n_now if isinstance(n_now, int) else 0
        extension = Extension(trials=more_trials, replicates=max(more_replicates, missing))
        if retry_failed:
            failed = rows.filter(IS_FAILED)
            run.say(f"{failed.num_rows:,} failed trainings to train again")
            extension = extension.retrying(
                zip(*failed.select(["trial", "replicate"]).to_pydict().values(), strict=True)
            )
            rows = rows.filter(~IS_FAILED)
        if stored.finished and not extension and not writer.set_aside:
            with open_resources(Resources(local=True)) as start_pool:
                return _train(run, stored, stored, workload, writer, rows, start_pool)
        environment = Environment.current(stored.engine)
        directory = stored.entering(environment)
        if extension:
            directory = directory.but(extensions=(*stored.extensions, extension))
        check_sweep(directory.spec, workload.parameters, workload.outcomes)
        if not accept_drift:
            check_drift(stored, environment)
        check_unchanged(directory, pinned(workload, directory.spec))
        check_starts(directory.spec, workload)
        with open_resources(resources) as start_pool:
            return _train(run, stored, directory, workload, writer, rows, start_pool)


@dataclass(frozen=True)
class _Run:
    """`patience`: seconds to wait for another process that holds the sweep."""

    resources: Resources
    console: Console
    patience: float = 0.0
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def say(self, line: str) -> None:
        self.console.print(line, soft_wrap=True, markup=False, highlight=False)


@contextmanager
def _resumable(directory: SweepDirectory, run: _Run) -> Iterator[None]:
    try:
        yield
    except (OSError, StoreError, DamagedFileError, PoolError) as error:
        raise SweepError(in_words(error), directory.place) from error
    except KeyboardInterrupt:
        # A second Ctrl-C, or one before the loop starts or after it has ended.
        run.say(how_to_continue(directory))
        raise


@contextmanager
def _writer(directory: SweepDirectory, workload: Workload[Any], run: _Run) -> Iterator[LedgerWriter]:
    """Holds the sweep's lock."""
    is_said = False
    while True:
        try:
            writer = LedgerWriter(directory.place, schemas_of(workload), directory.spec_sha256)
            break
        except TakenError as taken:
            if run.seconds >= run.patience:
                raise
            if not is_said:
                run.say(f"{taken}; waiting for up to {run.patience:g} s")
                is_said = True
        time.sleep(_RETRY_SECONDS)
    with writer:
        for message in writer.set_aside.values():
            run.say(message)
        yield writer


def _train(
    run: _Run,
    stored: SweepDirectory,
    directory: SweepDirectory,
    workload: Workload[Any],
    writer: LedgerWriter,
    rows: pa.Table,
    start_pool: StartPool,
) -> Summary:
    """`stored`: as the record has the sweep; `directory` replaces it. `rows`: of earlier runs, in `trainings`."""
    stop, finished = StopOnSignal(), False
    study = open_study(directory)
    replays = stored.progress.replays if directory.extensions == stored.extensions else None
    files, every = tuple(named_files(pinned(workload, directory.spec))), directory.spec.one_probe_in()

    def seconds_to_end() -> float | None:
        return None if finished and not stop.requested else stop.seconds_left

    def end() -> None:
        # If another driver has taken over the sweep, `progress.json` is that driver's.
        writer.confirm()
        study.save()
        directory.record_run(finished=finished, seconds=run.seconds, n_asked=study.n_asked, replays=replays)

    with ExitStack() as at_last:
        with ExitStack() as opened:
            context = RunContext(directory.sweep, directory.environment, files, directory.engine, every)
            pool = opened.enter_context(closing(start_pool(workload, context)))
            # All checks are done.
            writer.confirm()
            stored.record_as(directory)
            if directory.retried != stored.retried:
                writer.take_out_failed()
            display = ProgressDisplay(run.console, directory.own_spec, rows)
            beacon = Beacon(directory.place, directory.progress)
            loop = SweepLoop(
                directory,
                workload,
                study,
                writer,
                pool,
                pack_size=run.resources.pack_size,
                max_failures=run.resources.max_failures,
                follower=display.committed,
            )
            opened.callback(end)
            # MLflow's process follows `progress.json` to its end. It is waited for last, because it can log while Ray
            # shuts down and the summary is read.
            beacon.show("starting", study.n_asked, ())
            following = Following(directory) if run.resources.mlflow else None
            if following is not None:
                at_last.callback(lambda: following.close(seconds_to_end()))
            opened.enter_context(stop)
            opened.enter_context(display)
            found = loop.resume(rows)
            if any(found):
                n_left = directory.own_spec.trials * max_replicates(directory.spec.replicates) - found.n_kept
                begun = f"{found.n_from_checkpoint} of them from a checkpoint"
                run.say(f"found {found.n_kept} trainings, up to {n_left} trainings to train, {begun}")
            shown_at = 0.0

            def should_stop() -> bool:
                nonlocal shown_at
                for notice in pool.notices():
                    run.say(notice)
                if time.monotonic() - shown_at > _SHOW_SECONDS:
                    waiting_for, packs = pool.waiting_for, loop.under_way()
                    display.heartbeat(waiting_for, packs)
                    doing = f"waiting for {waiting_for}" if waiting_for else "training"
                    beacon.show(doing, study.n_asked, packs, display.seconds_left)
                    shown_at = time.monotonic()
                return stop.requested

            finished = loop.run(should_stop)
            if loop.end_reason:
                run.say(f"ended early: {loop.end_reason}")
            if finished and replays is None:
                beacon.show("replaying some of the trainings", study.n_asked, ())
                replays = replay_some(loop.directory, workload, pool, lambda: stop.requested)
        summary = summarize(
            directory,
            refused=study.refused,
            finished=finished,
            seconds=run.seconds,
            n_before=rows.num_rows,
            replays=replays,
        )
    return replace(summary, mlflow=following.in_words() if following else "", seconds=run.seconds)
