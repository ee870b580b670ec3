"""Runs or resumes a sweep, from the checks of the user's input to the summary at the end."""

from collections.abc import Sequence
from contextlib import chdir
from functools import partial

from rich.console import Console

from attnsweep.orchestrator.running.engine_choice import engine_for
from attnsweep.orchestrator.running.entry import (
    as_it_ended,
    check_retry,
    check_same,
    check_same_start,
    check_shard,
    going_on,
    pinned,
    resolved,
    stored_copy,
)
from attnsweep.orchestrator.running.one_run import OneRun
from attnsweep.orchestrator.running.outlook import Outlook
from attnsweep.orchestrator.running.preflight import Sample, check_new, check_starts
from attnsweep.orchestrator.running.summary import Summary
from attnsweep.orchestrator.running.warm_start import warm_start
from attnsweep.orchestrator.storage.annotation import Annotation
from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.errors import PoolError, SweepError
from attnsweep.orchestrator.storage.locks import LEASE_SECONDS
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.shards import Shard
from attnsweep.orchestrator.storage.stored_code import (
    check_unchanged,
    edited_since,
    load_workload_of,
    sha256_of_files,
)
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.storage.sweep_record import Extension
from attnsweep.orchestrator.terminal import PlainConsole
from attnsweep.orchestrator.tracking.store import tracking_uri
from attnsweep.orchestrator.training.resources import Resources, open_resources
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.user_code import UserCode, refuse_while_loading, user_code_of

_NOTHING_TO_REMEMBER = Annotation()
_THIS_MACHINE = Resources()
PREDECESSOR_SECONDS = 1.1 * LEASE_SECONDS
"""How long a sweep in an object store can look taken after its driver was killed, with a margin."""


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
    """Runs a new sweep in a new directory.

    Args:
        resources: What to run on; default Ray, on this machine or at `RAY_ADDRESS`. `Resources(local=True)` trains in
            this process.
        console: Where progress is shown; default stderr, or the output of a notebook's cell.
        code: The user's code in place of the file that the spec names.
        annotation: A note and tags to store with the sweep.
        warm_starts: Finished sweeps whose trials the sampler gets before its first draw.
        shard: The trials that this driver owns; `None` for all.

    Returns:
        The summary of the sweep; its `finished` is false if a signal ended the run early.

    Raises:
        UserError: If the spec, directory, address or `MLFLOW_TRACKING_URI` is not usable. Nothing has been written.
        PoolError: If Ray does not start. Nothing has been written.
        SweepError: If the sweep cannot continue.
    """
    console = console or PlainConsole(stderr=True)
    say = partial(console.print, soft_wrap=True, markup=False, highlight=False)
    one_run = OneRun(resources, console)
    tracking_uri()
    refuse_while_loading()
    workload = load_workload(spec.workload, code)
    SweepDirectory.check_new(where)
    if shard is not None:
        check_shard(spec, shard)
    spec = resolved(spec, workload)
    code = user_code_of(workload)
    told = warm_start(spec, workload.parameters, warm_starts, partial(console.print, markup=False, soft_wrap=True))
    # What is found by the working directory alone, no `resume` would find. So the copy that trains does not either.
    with chdir("/"):
        workload = stored_copy(spec, workload)
        warnings = check_new(spec, workload)
    one_run.outlook = Outlook.of(Sample.of(spec, workload), resources)
    choice = engine_for(spec, workload, resources.engine, console)
    with open_resources(resources) as start_pool:
        for warning in warnings:
            say(warning)
        if choice.notice is not None:
            say(choice.notice)
        declared, given = workload.parameters.declared(), spec.parameters()
        defaults = {name: parameter.default for name, parameter in declared.items() if name not in given}
        environment, files = Environment.current(choice.engine), sha256_of_files(pinned(workload, spec))

        directory = SweepDirectory.create(
            where,
            spec,
            defaults,
            environment,
            code,
            files=files,
            annotation=annotation,
            engine_reason=choice.reason,
            warm_start=told,
            shard=shard,
        )
        return one_run.run(directory, workload, start_pool, going_on(workload, environment))


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
    """Runs a sweep, or continues it if the directory holds it, so that a scheduler can repeat the same command.

    A finished sweep is summarized again without Ray, whatever code is installed by now. If a driver that was killed on
    another machine still holds the sweep's lock, the call waits some minutes until the lock expires.

    Args:
        spec, where, resources, console, code, annotation, warm_starts, shard: As for `run_sweep`.

    Raises:
        UserError: As for `run_sweep` and `resume_sweep`; also if the directory holds a sweep with another spec.
        PoolError, SweepError: As for `run_sweep` and `resume_sweep`.
    """
    if not SweepDirectory.is_there(where):
        return run_sweep(spec, where, resources, console, code, annotation, warm_starts, shard)
    directory = SweepDirectory.open(where)
    workload = load_workload(spec.workload, code)
    spec, code = resolved(spec, workload), user_code_of(workload)
    check_same(spec, code, shard, directory)
    check_same_start(directory, warm_starts)
    if not directory.finished:
        return resume_sweep(directory.place, resources, console, patience=PREDECESSOR_SECONDS)
    tracking_uri()
    with open_resources(Resources(local=True)) as start_pool:
        return OneRun(resources, console, PREDECESSOR_SECONDS).run(directory, workload, start_pool, as_it_ended)


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
    """Continues an interrupted sweep. A finished sweep is only summarized again, unless trials or trainings are added.

    Args:
        resources, console: As for `run_sweep`.
        accept_drift: Continue even if versions differ from those that have trained so far.
        patience: Seconds to wait for another process that holds the sweep.
        more_trials: Trials to add to the sweep, finished or not.
        more_replicates: Replicates to add to every trial. Trials that have ended keep their value.
        replicates: Replicates that every trial is to have at least, instead of `more_replicates`. Those that another
            process has added meanwhile are not added again.
        retry_failed: Train failed trainings again. Trials that have ended keep their value.

    Raises:
        UserError: If there is no sweep, its workload or a file that it names is missing or changed, the user's code in
            it is damaged, versions differ and `accept_drift` is not given, or another process works on it.
        SweepError: If the sweep cannot continue.
    """
    one_run = OneRun(resources, console or PlainConsole(stderr=True), patience, retry_failed)
    tracking_uri()
    refuse_while_loading()
    directory = SweepDirectory.open(where)
    if edited := edited_since(directory):
        one_run.console.print(edited, soft_wrap=True, markup=False, highlight=False)

    def more(found: SweepDirectory) -> Extension:
        there = found.spec.replicates
        return Extension(more_trials, max(more_replicates, replicates - there if isinstance(there, int) else 0))

    if retry_failed:
        check_retry(directory.spec)
    workload = load_workload_of(directory)
    environment = Environment.current(directory.engine)
    enter = going_on(workload, environment, more, accept_drift=accept_drift)
    spec = enter(directory).spec
    check_unchanged(directory, pinned(workload, spec))
    if more(directory) or retry_failed or not directory.finished:
        check_starts(Sample.of(spec, workload))
    try:
        with open_resources(resources) as start_pool:
            return one_run.run(directory, workload, start_pool, enter)
    except PoolError as error:
        raise SweepError(str(error), directory.place) from error
