"""From the spec that a user gives to the one that a sweep stores: what its values name is found and recorded."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attnsweep.orchestrator.inspection.bases import find_base
from attnsweep.orchestrator.running.study import check_storage
from attnsweep.orchestrator.storage.credentials import refuse_credentials
from attnsweep.orchestrator.storage.stored_code import named_by_file_alone
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.base_names import NamedBase
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.user_code import user_code_of, users_code


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
    """The spec as a sweep stores it, once it is known to fit its workload, and the weights that it starts from."""
    base = find_base(workload, spec.fixed(), known_bases)
    if base is not None:
        spec = spec.fix({workload.parameters.base_field: base.name})
    spec = spec.fix(pinned(workload, spec))
    check_sweep(spec, workload.parameters)
    refuse_credentials(spec)
    check_storage(spec)
    code = user_code_of(workload)
    return (spec if code is None else named_by_file_alone(spec, code)), base
