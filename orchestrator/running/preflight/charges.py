"""Checks that a sweep with `record_charges` has charges to record."""

from attnsweep.orchestrator.running.preflight.sample import Sample
from attnsweep.workloads.engine.probing import conserved_by
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.user_code import users_code


def check_charges(sample: Sample) -> None:
    """Refuses the parameter `record_charges` if no training declares a conserved quantity, because nothing would be
    recorded.

    Raises:
        SpecError: If trainings are to record charges, and none declares any.
        UserError: If the workload's own code fails.
    """
    spec, workload = sample.spec, sample.workload
    if spec.parameters().get("record_charges", False) is False:
        return
    drawn = [training.parameters for trainings in sample.shapes for training in trainings]
    recorded = [parameters for parameters in drawn if parameters.record_charges]
    with users_code(f"{spec.workload}: identities", "what gradients satisfy", "correct it, or leave it out"):
        if not recorded or any(conserved_by(workload, parameters) for parameters in recorded):
            return
    raise SpecError(
        "record_charges",
        given=True,
        expected=f"record_charges=false, because the workload {workload.name} declares no group or sum that training"
        " conserves, so nothing would be"
        " recorded",
        fix="remove record_charges, or declare groups in Workload.identities (docs/gradients.md, Charges and drift)",
    )
