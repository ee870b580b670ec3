"""What a run makes of what the user gave and of the sweep's record.

Of the record it is decided before the run starts, and again once no other process can change it.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from attnsweep.orchestrator.inspection.bases import find_base
from attnsweep.orchestrator.running.study import Study
from attnsweep.orchestrator.running.study_storage import check_storage
from attnsweep.orchestrator.storage.credentials import refuse_credentials
from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.extension import Extension
from attnsweep.orchestrator.storage.place_names import PlaceName, as_argument
from attnsweep.orchestrator.storage.stored_code import named_by_file_alone
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.base_names import NamedBase
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.user_code import UserCode, user_code_of, users_code

Entry = Callable[[SweepDirectory], SweepDirectory]
"""From a sweep as recorded to the sweep that the run goes on with. Raises UserError to refuse it; writes nothing."""


def going_on(
    workload: Workload[Any],
    environment: Environment,
    more: Callable[[SweepDirectory], Extension] = lambda _: Extension(),
    *,
    accept_drift: bool = False,
) -> Entry:
    """The entry of a run that trains.

    Args:
        workload: The sweep's.
        environment: In which the run trains.
        more: What it adds to the sweep as it finds it.
        accept_drift: Whether it may train in another environment than the sweep's latest.
    """

    def enter(found: SweepDirectory) -> SweepDirectory:
        entered = found.entering(environment).extended(more(found))
        check_sweep(entered.spec, workload.parameters, workload.outcomes)
        if not accept_drift:
            _check_drift(found, environment)
        return entered

    return enter


def as_it_ended(found: SweepDirectory) -> SweepDirectory:
    """The entry of a run that summarizes a finished sweep, in whatever environment."""
    if not found.finished:
        raise UserError(
            str(found.place),
            given="a sweep that another process has extended meanwhile",
            expected="a finished sweep",
            fix="repeat the command",
        )
    return found


def _check_drift(found: SweepDirectory, environment: Environment) -> None:
    if changes := found.changes(environment):
        raise UserError(
            str(found.place),
            given="; ".join(changes),
            expected="the versions and code that the sweep was trained with so far",
            fix=f"restore them, or continue with attnsweep resume {as_argument(found.place)} --accept-drift: "
            "column `environment` then distinguishes the rows",
        )


def pinned(workload: Workload[Any], spec: Sweep) -> dict[str, Value]:
    """What the workload records for the files that the spec names.

    Raises:
        UserError: If a file is missing or another than recorded, or if the workload's own code fails.
    """
    with users_code(f"{spec.workload}: pinned", "values to record, by name", "correct it, or leave it out"):
        return dict(workload.parameters.pinned(spec.fixed()))


def resolved(
    spec: Sweep, workload: Workload[Any], known_bases: Mapping[str, str] = MappingProxyType({})
) -> tuple[Sweep, NamedBase | None]:
    """The spec as a sweep stores it, once it is known to fit its workload, and the weights that it starts from.

    Args:
        spec: What the user gave.
        workload: Its workload.
        known_bases: Those that its directory has stored, and what the user gave for them.
    """
    base = find_base(workload, spec.fixed(), known_bases)
    if base is not None:
        spec = spec.fix({workload.parameters.base_field: base.name})
    spec = spec.fix(pinned(workload, spec))
    check_sweep(spec, workload.parameters, workload.outcomes)
    refuse_credentials(spec)
    check_storage(spec)
    code = user_code_of(workload)
    return (spec if code is None else named_by_file_alone(spec, code)), base


def check_same(spec: Sweep, code: UserCode | None, found: SweepDirectory) -> None:
    """Refuses a sweep of another spec, or of other code of the user's; what a description says does not matter."""
    if spec.but(description=found.spec.description).sha256() != found.spec_sha256:
        raise UserError(
            "--dir",
            given=f"{found.place}, which holds another sweep: {found.spec.name}, spec {found.spec_sha256[:12]}",
            expected=f"a new directory, or this sweep: {spec.name}, spec {spec.sha256()[:12]}",
            fix=f"choose another --dir; to continue the other sweep: attnsweep resume {as_argument(found.place)}",
        )
    if dict(found.code) != (code.sha256 if code else {}):
        raise UserError(
            "--dir",
            given=f"{found.place}, which holds this sweep with other code of {', '.join(found.code)}",
            expected="a new directory, or this sweep with the files as they are",
            fix=f"choose another --dir; to continue with the stored code: attnsweep resume {as_argument(found.place)}",
        )


def check_rows(directory: SweepDirectory, study: Study, rows: pa.Table) -> None:
    """Refuses rows of another sweep, and rows of trials that the study lacks, which would be trained twice."""
    place = directory.place
    if others := sorted({*rows["sweep"].unique().to_pylist()} - {directory.sweep}):
        raise UserError(
            f"{place}/trainings",
            given=f"trainings of the sweep {', '.join(others)}",
            expected=f"only those of {directory.sweep}, the sweep in sweep.json",
            fix="remove the files that were copied into it, or restore sweep.json; to see what is wrong:"
            f" attnsweep audit {as_argument(place)}",
        )
    study.check_known(rows["trial"].unique().to_pylist())


def check_retry(spec: Sweep) -> None:
    """Refuses to train failed trainings again where a rule has counted them."""
    if not isinstance(spec.replicates, int):
        raise UserError(
            "--retry-failed",
            given=f"a sweep in which a rule decides how many replicates a trial gets: {spec.replicates}",
            expected="a fixed number of replicates: the rule has decided with the failed trainings as they are",
            fix="run a new sweep, or leave them failed",
        )


def check_same_start(found: SweepDirectory, warm_starts: Sequence[PlaceName]) -> None:
    """Refuses to go on with a sweep whose sampler was told nothing before its first draw, where it was to be."""
    if warm_starts and not found.warm_start:
        raise UserError(
            "--warm-start",
            given=f"for {found.place}, a sweep that began without it",
            expected="a new sweep: a sampler is told earlier trials before its first draw",
            fix="choose another --dir, or leave it out",
        )
