"""One run of a sweep from start to summary: new, or taken up where it stopped."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass

import ray.cloudpickle
from rich.console import Console

from orchestrator import cluster
from orchestrator.errors import SweepError
from orchestrator.ledger.reader import Ledger
from orchestrator.ledger.schema import heads_schema, trainings_schema
from orchestrator.ledger.writer import LedgerWriter
from orchestrator.loop import SweepLoop
from orchestrator.places.location import Location, StoreError
from orchestrator.pool import TrainerPool
from orchestrator.progress import ProgressDisplay, logging_progress
from orchestrator.signals import StopOnSignal
from orchestrator.study import Study, check_storage
from orchestrator.summary import Summary, summarize
from orchestrator.sweep_directory import SweepDirectory
from orchestrator.tracking import Projection, tracking_uri
from search_spaces.sweep import Sweep
from search_spaces.validation import check_sweep
from workloads.registry import load_workload
from workloads.user_code import user_modules

_MLFLOW_SECONDS_AFTER_INTERRUPT = 5.0


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What to run on.

    Attributes:
        address: A Ray cluster, `None` for `RAY_ADDRESS` or this machine.
        n_trainers: Trainer actors, `None` for one per GPU or core.
        pack_size: Trainings in a pack, `None` for the fastest.
    """

    address: str | None = None
    n_trainers: int | None = None
    pack_size: int | None = None


def run_sweep(spec: Sweep, path: Location, resources: Resources, console: Console) -> Summary:
    """Runs a new sweep in a new directory.

    Returns:
        What became of it; `finished` is false where a signal ended it early.

    Raises:
        UserError: For a spec, directory or address that will not do; then nothing has been written.
        SweepError: If the sweep cannot go on.
    """
    started = time.monotonic()
    parameters = load_workload(spec.workload).parameters
    spec = spec.fix(parameters.pinned(spec.fixed()))
    check_sweep(spec, parameters)
    check_storage(spec)
    SweepDirectory.check_new(path)
    with cluster.connection(resources.address):
        shares = cluster.share_out(resources.n_trainers)
        defaults = {name: each.default for name, each in parameters.declared().items() if name not in spec.space}
        return _train(SweepDirectory.create(path, spec, defaults), resources, shares, console, started)


def resume_sweep(path: Location, resources: Resources, console: Console) -> Summary:
    """Goes on with a sweep that was interrupted; a finished one is summarized again.

    Raises:
        UserError: If there is no sweep, its workload is gone, or a file that it names is another by now.
        SweepError: If the sweep cannot go on.
    """
    started = time.monotonic()
    directory = SweepDirectory.open(path)
    load_workload(directory.spec.workload).parameters.pinned(directory.spec.fixed())
    with cluster.connection(resources.address):
        return _train(directory, resources, cluster.share_out(resources.n_trainers), console, started)


def _train(
    directory: SweepDirectory,
    resources: Resources,
    shares: Sequence[cluster.TrainerShare],
    console: Console,
    started: float,
) -> Summary:
    try:
        return _take_up(directory, resources, shares, console, started)
    except StoreError as error:
        # It did answer when the sweep began.
        raise SweepError(str(error), directory.path) from error


def _take_up(
    directory: SweepDirectory,
    resources: Resources,
    shares: Sequence[cluster.TrainerShare],
    console: Console,
    started: float,
) -> Summary:
    spec = directory.spec
    workload = load_workload(spec.workload)
    for module in user_modules():
        ray.cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    schema = trainings_schema(workload.parameters, workload.level_names)
    heads = heads_schema(workload.head_score_names) if workload.head_score_names else None
    with LedgerWriter(directory.path, schema, heads, directory.spec_sha256) as writer:
        for words in writer.set_aside.values():
            console.print(words)
        study = Study(directory)
        rows = Ledger(directory.path).trainings(columns=["trial", "replicate", "outcome", "stuck", "eval_loss"])
        pool = TrainerPool(workload, directory.sweep, shares)
        projection = Projection(directory)
        display = ProgressDisplay(console, spec, rows)
        loop = SweepLoop(
            directory, workload, study, writer, pool, pack_size=resources.pack_size, followers=(display, projection)
        )
        finished = False
        try:
            with StopOnSignal() as stop, display:
                loop.take_up(rows)
                finished = loop.run(lambda: _look_around(display, pool) or stop.requested)
        finally:
            pool.close()
            try:
                writer.confirm()
                study.save()
                directory.record_run(finished=finished, seconds=time.monotonic() - started)
            finally:
                patience = None if finished else _MLFLOW_SECONDS_AFTER_INTERRUPT
                projection.close(patience, logging_progress(console))
    return summarize(
        directory,
        refused=study.refused,
        finished=finished,
        seconds=time.monotonic() - started,
        n_before=rows.num_rows,
        mlflow=projection.problem or f"mlflow ui --backend-store-uri {shlex.quote(tracking_uri())}",
    )


def _look_around(display: ProgressDisplay, pool: TrainerPool) -> bool:
    """Lets the display speak; never a reason to stop."""
    nothing_placed = pool.n_placed == 0
    display.heartbeat(f"Ray to start {pool.n_trainers} trainers" if nothing_placed else "")
    return False
