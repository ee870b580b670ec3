"""Decides which sweep a run trains, by comparing the user's input with the sweep's stored record (`sweep.json`). Input
that contradicts the record is refused.

The record is checked before the run starts, and again once the run holds the sweep's lock, so that nothing else can
change the record. A sweep may be divided among several drivers; each driver trains a shard, and all share the record.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from attnsweep.orchestrator.running.study import Study
from attnsweep.orchestrator.running.study_storage import check_storage
from attnsweep.orchestrator.storage.credentials import refuse_credentials
from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.place_names import PlaceName, as_argument, place_of
from attnsweep.orchestrator.storage.shards import Shard
from attnsweep.orchestrator.storage.stored_code import named_by_file_alone
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.storage.sweep_record import Extension
from attnsweep.search_spaces.sweep import LEARN_NOTHING, Sweep
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.user_code import UserCode, user_code_of, users_code

Entry = Callable[[SweepDirectory], SweepDirectory]
"""Maps a sweep as recorded to the sweep that the run continues. Raises UserError to refuse the sweep; writes
nothing."""
_FLAG = "--shard"
_PATIENCE_SECONDS, _LOOK_SECONDS = 30.0, 0.1
"""How long a driver waits for the record of the sweep while another driver writes the record."""


def going_on(
    workload: Workload[Any],
    environment: Environment,
    more: Callable[[SweepDirectory], Extension] = lambda _: Extension(),
    *,
    accept_drift: bool = False,
) -> Entry:
    """Returns a function that takes a stored sweep and returns the sweep to continue: with the environment of this run,
    and with any trials and replicates (trainings per trial) that the run adds.

    Args:
        workload: The sweep's workload.
        environment: The environment in which the run trains.
        more: Returns the trials and replicates that the run adds to the sweep as recorded.
        accept_drift: Whether the run may train in an environment that differs from the sweep's latest.
    """

    def enter(directory: SweepDirectory) -> SweepDirectory:
        entered = directory.entering(environment).extended(more(directory))
        check_sweep(entered.spec, workload.parameters, workload.outcomes)
        if not accept_drift and (changes := directory.changes(environment)):
            raise UserError(
                str(directory.place),
                given="; ".join(changes),
                expected="the library versions and code that the sweep was trained with so far",
                fix="restore these versions and code, or continue with attnsweep resume"
                f" {as_argument(directory.place)} --accept-drift: the column `environment` then names the versions of"
                " each row",
            )
        return entered

    return enter


def as_it_ended(directory: SweepDirectory) -> SweepDirectory:
    """Returns a finished sweep unchanged, for a run that only summarizes it. Raises an error if the sweep is not
    finished."""
    if not directory.finished:
        raise UserError(
            str(directory.place),
            given="a sweep to which another process has just added trials or replicates",
            expected="a finished sweep",
            fix="run the same command again",
        )
    return directory


def pinned(workload: Workload[Any], spec: Sweep) -> dict[str, Value]:
    """Returns the values, by parameter, that a workload adds to a spec to identify the files that the spec names, such
    as digests of the files.

    Raises:
        UserError: If a file is missing or differs from the record, or if the workload's own code fails.
    """
    with users_code(f"{spec.workload}: pinned", "values to record, by name", "correct it, or leave it out"):
        return dict(workload.parameters.pinned(spec.fixed()))


def resolved(spec: Sweep, workload: Workload[Any]) -> Sweep:
    """Checks a sweep's spec against its workload, and returns the spec to store."""
    spec = spec.fix(pinned(workload, spec))
    check_sweep(spec, workload.parameters, workload.outcomes)
    refuse_credentials(spec)
    check_storage(spec)
    code = user_code_of(workload)
    return spec if code is None else named_by_file_alone(spec, code)


def stored_copy(spec: Sweep, workload: Workload[Any]) -> Workload[Any]:
    """Loads a user's workload again from a copy of its code, as a resumed sweep loads it.

    Raises:
        UserError: If the copy does not load.
    """
    code = user_code_of(workload)
    return workload if code is None else load_workload(spec.workload, replace(code, is_apart=True))


def check_same(spec: Sweep, code: UserCode | None, directory: SweepDirectory) -> None:
    """Raises an error if the sweep in the directory differs from the given one in its spec or its user code. Only the
    description may differ."""
    place = directory.place
    if spec.but(description=directory.spec.description).sha256() != directory.spec_sha256:
        raise UserError(
            "--dir",
            given=f"the directory {place}, which contains another sweep: {directory.spec.name}, with the spec hash"
            f" {directory.spec_sha256[:12]}",
            expected=f"a new directory, or one with this sweep: {spec.name}, with the spec hash {spec.sha256()[:12]}",
            fix=f"choose another --dir; to continue the other sweep: attnsweep resume {as_argument(place)}",
        )
    if dict(directory.code) != (code.sha256 if code else {}):
        code_files = ", ".join(directory.code)
        raise UserError(
            "--dir",
            given=f"the directory {place}, which contains this sweep with other code in the files {code_files}",
            expected="a new directory, or one with this sweep and the same code",
            fix=f"choose another --dir; to continue with the stored code: attnsweep resume {as_argument(place)}",
        )


def check_rows(directory: SweepDirectory, study: Study, rows: pa.Table) -> None:
    """Raises an error if the ledger has rows of another sweep, or of trials that the Optuna study lacks.

    The study would draw missing trials again, so they would be trained twice.
    """
    place = directory.place
    if others := sorted({*rows["sweep"].unique().to_pylist()} - {directory.sweep}):
        other_sweeps = ", ".join(others)
        raise UserError(
            f"{place}/trainings",
            given=f"trainings of another sweep: {other_sweeps}",
            expected=f"only trainings of the sweep that sweep.json describes, {directory.sweep}",
            fix="remove the files that were copied into the directory, or restore sweep.json; to see what is wrong:"
            f" attnsweep audit {as_argument(place)}",
        )
    study.check_known(rows["trial"].unique().to_pylist())


def check_retry(spec: Sweep) -> None:
    """Refuses `--retry-failed` for a sweep in which a rule decides how many replicates (trainings) a trial gets.
    A retry would change results on which the rule has already based decisions."""
    if not isinstance(spec.replicates, int):
        raise UserError(
            "--retry-failed",
            given=f"a sweep in which a rule decides how many replicates a trial gets: {spec.replicates}",
            expected="a sweep with a fixed number of replicates: the rule has already counted the failed trainings, and"
            " other results of them would contradict its decisions",
            fix="run a new sweep, or leave out --retry-failed",
        )


def check_same_start(directory: SweepDirectory, warm_starts: Sequence[PlaceName]) -> None:
    """Refuses `--warm-start` (trials of earlier sweeps for the sampler) for a sweep that was begun without it."""
    if warm_starts and not directory.warm_start:
        raise UserError(
            "--warm-start",
            given=f"--warm-start for {directory.place}, a sweep that began without --warm-start",
            expected="a new sweep, because a sampler learns from other sweeps' trials only before its first draw",
            fix="choose another --dir, or leave out --warm-start",
        )


def check_divisible(spec: Sweep, shard: Shard) -> None:
    """Refuses to divide a sweep among several drivers if they would have to share something: the results of trials, a
    clock or a storage. Also refuses more drivers than trials.

    Raises:
        UserError: If the sweep cannot be divided, with the reason.
    """
    refusals = {
        f"sampler={spec.sampler}": (
            spec.sampler not in LEARN_NOTHING,
            "random, qmc or grid: other samplers learn from all trials, but a driver knows only its own",
        ),
        "a pruner": (spec.pruner is not None, "no pruner: it would compare each trial with all others"),
        f"seconds={spec.seconds}": (
            spec.seconds is not None,
            "a number of trials as the only limit, because each driver has its own clock",
        ),
        "a storage": (spec.storage is not None, "no storage: each driver keeps its study in its own directory"),
        f"{shard} of {spec.trials} trials": (shard.count > spec.trials, "at most as many drivers as trials"),
    }
    for given, (is_refused, expected) in refusals.items():
        if is_refused:
            raise UserError(
                _FLAG,
                given=given,
                expected=f"a sweep that several drivers can share, with {expected}",
                fix="change this setting of the sweep, or leave out --shard to run the sweep with one driver",
            )


def found_whole(where: PlaceName, shard: Shard, spec: Sweep, code: UserCode | None) -> SweepDirectory | None:
    """Opens the directory of a sweep that is divided into shards (shares of the trials, each run by its own process),
    as the first of these processes has created it. Returns `None` if none has created it yet.

    Raises:
        UserError: If the directory holds another sweep, or the same sweep with another number of shards.
    """
    if not SweepDirectory.is_there(where):
        return None
    whole = SweepDirectory.open_begun(where)
    check_same(spec, code, whole)
    if whole.shards != shard.count:
        divided = f"{whole.shards} shards" if whole.shards else "one driver"
        raise UserError(
            _FLAG,
            given=f"the shard {shard} of the sweep {whole.place}, which has {divided}",
            expected="the number of shards with which the sweep's first driver was started",
            fix=f"write {_FLAG} I/{whole.shards}, or choose another --dir"
            if whole.shards
            else f"leave {_FLAG} out, or choose another --dir",
        )
    return whole


def begin_shard(
    where: PlaceName,
    shard: Shard,
    spec: Sweep,
    code: UserCode | None,
    environment: Environment,
    create: Callable[..., SweepDirectory],
) -> SweepDirectory:
    """Creates the directory of a shard (the trials of one driver of a sweep), and the directory of the whole sweep if
    no other driver has created it.

    Args:
        where: The sweep's directory.
        shard: The shard to begin.
        spec, code, environment: What this driver would run.
        create: Makes a directory at a place, with `shards` for a divided sweep, or with `shard` for a shard.
    """
    until = time.monotonic() + _PATIENCE_SECONDS
    while (whole := found_whole(where, shard, spec, code)) is None:
        try:
            create(where, shards=shard.count)
        except UserError:
            # `create` raises a UserError for a moment while another driver writes the record, so it is called again. An
            # error that lasts longer has another cause, and is raised.
            if not SweepDirectory.is_there(where) and time.monotonic() > until:
                raise
            time.sleep(_LOOK_SECONDS)
    if whole.engine != environment.engine:
        raise UserError(
            "--engine",
            given=f"the engine {environment.engine} for this driver; another driver has just begun the sweep with the"
            f" engine {whole.engine}",
            expected="the same engine for all drivers of a sweep",
            fix="run the same command again: it then takes the other driver's engine",
        )
    if changes := whole.changes(environment):
        raise UserError(
            str(whole.place),
            given="; ".join(changes),
            expected="the same library versions and code as those of the driver that began the sweep",
            fix="install the first driver's library versions and code on this machine",
        )
    return create(whole.place.inside(shard.folder), shard=shard)


def refuse_whole(directory: SweepDirectory) -> None:
    """Refuses to run a sweep as a whole if it is divided into shards (parts with a driver each).

    Raises:
        UserError: If the sweep has shards.
    """
    if directory.shards:
        raise UserError(
            "--dir",
            given=f"the directory {directory.place} of a sweep of {directory.shards} shards",
            expected=f"the number of the shard to run, given by {_FLAG}",
            fix=f"add {_FLAG} I/{directory.shards}; or continue all shards that have begun: attnsweep resume"
            f" {as_argument(directory.place)}",
        )


def refuse_extension(directory: SweepDirectory) -> None:
    """Refuses to add trials or replicates to a sweep that is divided into shards, or to one of its shards.

    Raises:
        UserError: If the sweep has shards.
    """
    if directory.shards or directory.shard:
        raise UserError(
            "--trials, --replicates",
            given=f"the directory {directory.place} of a sweep of several drivers",
            expected="a sweep of one driver, because several drivers share the sweep's record, which must not change",
            fix="run a new sweep with another --seed, and read both sweeps together with open_sweep(A, B)",
        )


def home_of(where: PlaceName, shard: Shard | None) -> PlaceName:
    """Returns the directory that a driver of a sweep writes to. It is the sweep's own or, if several drivers share the
    sweep, the one for this driver's part (its shard).
    """
    return where if shard is None else place_of(where, "--dir").inside(shard.folder)
