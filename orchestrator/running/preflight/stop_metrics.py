"""Checks that the metrics exist by which trainings of a sweep are to end."""

from attnsweep.orchestrator.running.preflight.sample import Sample
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.user_code import users_code


def check_stop_metrics(sample: Sample) -> None:
    """Refuses `stop_when` conditions on metrics that the workload does not measure. Measures the start of a training
    for each condition.

    Raises:
        SpecError: If `stop_when` names such a metric.
        UserError: If the workload's own code fails.
    """
    conditions: set[str] = set()
    for training, *_ in sample.shapes:
        stop_when = training.parameters.stop_when
        if stop_when is not None and stop_when not in conditions:
            conditions.add(stop_when)
            with training_settings(), users_code(f"{sample.spec.workload}: measure", "metrics by name", "correct it"):
                Pack(sample.workload, [training]).advance(1, n_probes=1)
