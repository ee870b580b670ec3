"""The spec that a sweep stores: what the user gave, once it is known to fit its workload."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attnsweep.orchestrator.inspection.bases import find_base
from attnsweep.orchestrator.running.study_database import check_storage
from attnsweep.orchestrator.storage.credentials import refuse_credentials
from attnsweep.orchestrator.storage.location import as_argument
from attnsweep.orchestrator.storage.stored_code import named_by_file_alone
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.base_names import NamedBase
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.user_code import UserCode, user_code_of, users_code


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
    check_sweep(spec, workload.parameters)
    refuse_credentials(spec)
    check_storage(spec)
    code = user_code_of(workload)
    return (spec if code is None else named_by_file_alone(spec, code)), base


def check_same(spec: Sweep, code: UserCode | None, found: SweepDirectory) -> None:
    """Refuses a sweep of another spec, or of other code of the user's."""
    if spec.sha256() != found.spec_sha256:
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
