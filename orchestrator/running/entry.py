"""What a run makes of a sweep's record: decided before it starts, and again once no other process can change it."""

from collections.abc import Callable
from typing import Any

from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.extension import Extension
from attnsweep.orchestrator.storage.location import as_argument
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.errors import UserError

Entry = Callable[[SweepDirectory], SweepDirectory]
"""From a sweep as recorded to the sweep that the run goes on with. Raises UserError to refuse it; writes nothing."""

_NOTHING_MORE = Extension()


def going_on(
    workload: Workload[Any], environment: Environment, more: Extension = _NOTHING_MORE, *, accept_drift: bool = False
) -> Entry:
    """The entry of a run that trains.

    Args:
        workload: The sweep's.
        environment: In which the run trains.
        more: What it adds to the sweep.
        accept_drift: Whether it may train in another environment than the sweep's latest.
    """

    def enter(found: SweepDirectory) -> SweepDirectory:
        entered = found.entering(environment).extended(more)
        check_sweep(entered.spec, workload.parameters)
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
