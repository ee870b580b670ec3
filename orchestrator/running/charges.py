"""Whether a sweep that is to record charges has any."""

from typing import Any

from attnsweep.search_spaces.random_draws import drawn_parameters
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.engine.conserved import conserved_by
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.user_code import users_code

_TRIALS = 64


def check_charges(spec: Sweep, workload: Workload[Any]) -> None:
    """Refuses `record_charges` where no training declares what it conserves: nothing would be recorded.

    Looks at 64 trials drawn at random.

    Raises:
        SpecError: If they are to record charges, and none declares any.
        UserError: If the workload's own code fails.
    """
    if spec.space.get("record_charges", False) is False:
        return
    recorded = [each for each in drawn_parameters(spec, workload.parameters, _TRIALS) if each.record_charges]
    with users_code(f"{spec.workload}: identities", "what gradients satisfy", "correct it, or leave it out"):
        if not recorded or any(conserved_by(workload, each) for each in recorded):
            return
    raise SpecError(
        "record_charges",
        given=True,
        expected=f"false: {workload.name} declares no group or sum that training conserves, so nothing would be"
        " recorded",
        fix="remove it, or declare groups in Workload.identities (docs/gradients.md, Charges and drift)",
    )
