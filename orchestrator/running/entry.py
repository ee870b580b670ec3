"""Refuses a run whose input does not fit the workload, the sweep's record or its rows."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from attnsweep.orchestrator.running.study import check_storage
from attnsweep.orchestrator.storage.copies import name_of
from attnsweep.orchestrator.storage.credentials import refuse_credentials
from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.place_names import PlaceName, as_argument
from attnsweep.orchestrator.storage.shards import Shard
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.user_code import UserCode, user_code_of, users_code


def pinned(workload: Workload[Any], spec: Sweep) -> dict[str, Value]:
    """What identifies the files that a spec names, such as digests, by parameter. Raises UserError if one is missing or
    has changed, or the workload's own code fails."""
    with users_code(f"{spec.workload}: pinned", "values to record, by name", "correct it, or leave it out"):
        return dict(workload.parameters.pinned(spec.fixed()))


def resolved(spec: Sweep, workload: Workload[Any]) -> Sweep:
    """The spec as the record will have it. Raises UserError if it is not usable."""
    spec = spec.fix(pinned(workload, spec))
    check_sweep(spec, workload.parameters, workload.outcomes)
    refuse_credentials(spec)
    check_storage(spec)
    code = user_code_of(workload)
    # By the file's name alone: its folder need not exist any more after the run.
    return spec if code is None else spec.but(workload=f"{code.main}:{spec.workload.rpartition(':')[2]}")


def check_same(
    spec: Sweep, code: UserCode | None, shard: Shard, warm_starts: Sequence[PlaceName], directory: SweepDirectory
) -> None:
    """Refuses another shard, user code or spec (only its description may differ), and a first warm start."""
    place, name = directory.place, name_of(directory.place)
    if directory.shard != shard:
        expected = f"a new directory: this one holds the shard {directory.shard}"
        raise UserError("--shard", given=str(shard), expected=expected, fix="choose another --dir or --shard")
    if spec.but(description=directory.spec.description).sha256() != directory.spec_sha256:
        expected = f"a new directory, or one with this sweep: {spec.name}, with the spec hash {spec.sha256()[:12]}"
        given = f"{name}, which holds the sweep {directory.spec.name}, with the spec hash {directory.spec_sha256[:12]}"
        fix = f"choose another --dir; to continue the other sweep: attnsweep resume {as_argument(place)}"
        raise UserError("--dir", given=given, expected=expected, fix=fix)
    if dict(directory.code) != (code.sha256 if code else {}):
        given = f"{name}, which holds this sweep with other code in the files {', '.join(directory.code)}"
        fix = f"choose another --dir; to continue with the stored code: attnsweep resume {as_argument(place)}"
        raise UserError("--dir", given=given, expected="a new directory, or one with the same code", fix=fix)
    if warm_starts and not directory.warm_start:
        given, fix = f"{name}, a sweep that began without", "choose another --dir, or leave out --warm-start"
        expected = "a new sweep, because a sampler learns from other sweeps' trials only before its first draw"
        raise UserError("--warm-start", given=given, expected=expected, fix=fix)


def check_rows(directory: SweepDirectory, rows: pa.Table) -> None:
    """Refuses rows of another sweep, or of trials that are not this one's."""
    place, own_trials = directory.place, directory.shard.first(directory.own_spec.trials)
    step = f" in steps of {own_trials.step}" if own_trials.step > 1 else ""
    others = sorted({*rows["sweep"].unique().to_pylist()} - {directory.sweep})
    unknown = [trial for trial in rows["trial"].unique().to_pylist() if trial not in own_trials]
    if others or unknown:
        given = f"trainings of another sweep: {', '.join(others)}" if others else f"trainings of trial {unknown[0]}"
        fix = f"remove copied files, or restore sweep.json; to see what is wrong: attnsweep audit {as_argument(place)}"
        expected = f"only trials {own_trials[0]} to {own_trials[-1]}{step} of {directory.sweep}"
        raise UserError(f"{place}/trainings", given=given, expected=expected, fix=fix)


def check_drift(directory: SweepDirectory, environment: Environment) -> None:
    if changes := directory.changes(environment):
        expected = "the versions that its last run had"
        fix = f"restore them, or go on with: attnsweep resume {as_argument(directory.place)} --accept-drift"
        raise UserError(name_of(directory.place), given="; ".join(changes), expected=expected, fix=fix)


def check_shard(spec: Sweep, shard: Shard) -> None:
    if shard.count > spec.trials:
        expected, fix = "at most as many drivers as trials", "start fewer drivers, or add --trials N"
        raise UserError("--shard", given=f"{shard} of {spec.trials} trials", expected=expected, fix=fix)
