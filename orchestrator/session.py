"""One run of a sweep from start to summary: new, or taken up where it stopped."""

import shlex
import time

import pyarrow as pa
from rich.console import Console

from orchestrator.credentials import refuse_credentials, without_credentials
from orchestrator.environment import Environment
from orchestrator.errors import PoolError, SweepError
from orchestrator.ledger.reader import Ledger
from orchestrator.ledger.schema import heads_schema, trainings_schema
from orchestrator.ledger.writer import LedgerWriter
from orchestrator.loop import Found, SweepLoop
from orchestrator.places.location import Location, StoreError, as_argument
from orchestrator.pool_protocol import Pool
from orchestrator.progress import ProgressDisplay, logging_progress
from orchestrator.replays import earlier_replays, replay_some
from orchestrator.resources import Resources, StartPool, open_resources
from orchestrator.signals import StopOnSignal
from orchestrator.study import Study, check_storage
from orchestrator.summary import Summary, summarize
from orchestrator.sweep_directory import SweepDirectory
from orchestrator.tracking import Projection, tracking_uri
from orchestrator.whereabouts import Beacon
from search_spaces.sweep import Sweep
from search_spaces.validation import check_sweep
from workloads.errors import UserError
from workloads.registry import load_workload


def run_sweep(spec: Sweep, path: Location, resources: Resources, console: Console) -> Summary:
    """Runs a new sweep in a new directory.

    Returns:
        What became of it; `finished` is false where a signal ended it early.

    Raises:
        UserError: For a spec, directory, address or `MLFLOW_TRACKING_URI` that will not do; then nothing has been
            written.
        PoolError: If Ray does not start; then nothing has been written either.
        SweepError: If the sweep cannot go on.
    """
    started = time.monotonic()
    tracking_uri()
    workload = load_workload(spec.workload)
    parameters = workload.parameters
    spec = spec.fix(parameters.pinned(spec.fixed()))
    check_sweep(spec, parameters)
    refuse_credentials(spec)
    check_storage(spec)
    SweepDirectory.check_new(path)
    with open_resources(resources) as start_pool:
        defaults = {name: each.default for name, each in parameters.declared().items() if name not in spec.space}
        environment = Environment.current(workload)
        return _train(SweepDirectory.create(path, spec, defaults, environment), resources, start_pool, console, started)


def resume_sweep(path: Location, resources: Resources, console: Console, *, accept_drift: bool = False) -> Summary:
    """Goes on with a sweep that was interrupted; a finished one is summarized again.

    Args:
        path: The sweep directory.
        resources: What to run on.
        console: For progress.
        accept_drift: Go on with other versions or code than those that trained so far.

    Raises:
        UserError: If there is no sweep, its workload is gone, a file that it names is another by now, or versions or
            code differ and `accept_drift` does not say that they may.
        SweepError: If the sweep cannot go on.
    """
    started = time.monotonic()
    tracking_uri()
    directory = SweepDirectory.open(path)
    workload = load_workload(directory.spec.workload)
    workload.parameters.pinned(directory.spec.fixed())
    environment = Environment.current(workload)
    changes = directory.changes(environment)
    if changes and not accept_drift:
        raise UserError(
            str(path),
            given="; ".join(changes),
            expected="the versions and code that the sweep was trained with so far",
            mend="restore them, or add --accept-drift: column `environment` then tells rows of the two apart",
        )
    try:
        with open_resources(resources) as start_pool:
            return _train(directory, resources, start_pool, console, started, environment)
    except PoolError as error:
        raise SweepError(str(error), path) from error


def _train(
    directory: SweepDirectory,
    resources: Resources,
    start_pool: StartPool,
    console: Console,
    started: float,
    environment: Environment | None = None,
) -> Summary:
    try:
        return _take_up(directory, resources, start_pool, console, started, environment)
    except (StoreError, PoolError) as error:
        # Both were well when the sweep began.
        raise SweepError(str(error), directory.path) from error


def _take_up(
    directory: SweepDirectory,
    resources: Resources,
    start_pool: StartPool,
    console: Console,
    started: float,
    environment: Environment | None,
) -> Summary:
    spec = directory.spec
    workload = load_workload(spec.workload)
    schema = trainings_schema(workload.parameters, workload.level_names)
    heads = heads_schema(workload.head_score_names) if workload.head_score_names else None
    with LedgerWriter(directory.path, schema, heads, directory.spec_sha256) as writer:
        if environment is not None:
            # Only now: another process may have been at work.
            directory = directory.entering(environment)
        for words in writer.set_aside.values():
            console.print(words)
        study = Study(directory)
        columns = ["sweep", "trial", "replicate", "outcome", "stuck", "eval_loss"]
        rows = Ledger(directory.path).trainings(columns=columns)
        _check_rows(directory, study, rows)
        pool = start_pool(workload, directory.sweep)
        projection = Projection(directory)
        display = ProgressDisplay(console, spec, rows)
        beacon = Beacon(directory.path)
        loop = SweepLoop(
            directory,
            workload,
            study,
            writer,
            pool,
            pack_size=resources.pack_size,
            max_failures=resources.max_failures,
            followers=(display, projection),
        )
        finished, replays = False, earlier_replays(directory)
        stop = StopOnSignal()
        try:
            with stop, display:
                _say_what_was_found(console, loop.take_up(rows))
                finished = loop.run(lambda: _look_around(display, beacon, pool, loop) or stop.requested)
                if finished and replays is None:
                    beacon.show("training some of them again, alone", loop.n_asked, ())
                    replays = replay_some(directory, pool, lambda: stop.requested)
        finally:
            pool.close()
            beacon.end()
            try:
                writer.confirm()
                study.save()
                directory.record_run(finished=finished, seconds=time.monotonic() - started)
            finally:
                patience = None if finished and not stop.requested else stop.seconds_left
                projection.close(patience, logging_progress(console))
    return summarize(
        directory,
        refused=study.refused,
        finished=finished,
        seconds=time.monotonic() - started,
        n_before=rows.num_rows,
        mlflow=projection.shortfall() or f"mlflow ui --backend-store-uri {_shown(tracking_uri())}",
        in_mlflow=projection.problem is None,
        replays=replays,
    )


def _check_rows(directory: SweepDirectory, study: Study, rows: pa.Table) -> None:
    """Refuses rows of another sweep, or of trials that the study lacks: those would be trained a second time."""
    path = directory.path
    if others := sorted({*rows["sweep"].unique().to_pylist()} - {directory.sweep}):
        raise UserError(
            f"{path}/trainings",
            given=f"trainings of the sweep {', '.join(others)}",
            expected=f"those of {directory.sweep} alone, the sweep in sweep.json",
            mend="remove the files that were copied into it, or restore sweep.json; to see what is amiss:"
            f" attnsweep audit {as_argument(path)}",
        )
    study.check_known(rows["trial"].unique().to_pylist())


def _say_what_was_found(console: Console, found: Found) -> None:
    if found.n_kept or found.n_told or found.n_queued:
        again = f"{found.n_queued} trainings to train"
        if found.n_from_checkpoint:
            again += f", {found.n_from_checkpoint} of them from a checkpoint"
        console.print(f"found {found.n_kept} trainings, told {found.n_told} trials, {again}", markup=False)


def _shown(uri: str) -> str:
    """For a shell: a URI with credentials, which only the environment can have given, stays there."""
    return shlex.quote(uri) if without_credentials(uri) == uri else '"$MLFLOW_TRACKING_URI"'


def _look_around(display: ProgressDisplay, beacon: Beacon, pool: Pool, loop: SweepLoop) -> bool:
    """Says where the sweep is, here and to `attnsweep status`; never a reason to stop."""
    waiting_for = f"Ray to start {pool.n_trainers} trainers" if pool.n_placed == 0 else ""
    packs = loop.under_way()
    display.heartbeat(waiting_for, packs)
    beacon.show(f"waiting for {waiting_for}" if waiting_for else "training", loop.n_asked, packs)
    return False
