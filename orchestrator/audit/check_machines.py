"""Reports which types of machine trained the rows, and finds rows whose environment is not recorded."""

from collections.abc import Mapping

from attnsweep.orchestrator.analysis.machines import are_several, types_in_words
from attnsweep.orchestrator.audit.problems import Check, Problem
from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE, SweepDirectory


def check_machines(trainings: Mapping[str | None, int], directory: SweepDirectory) -> list[Check]:
    """Reports if rows come from several types of machine, or from environments without a record; else returns no check.

    Args:
        trainings: Number of trainings by the id of their environment; `None` if it was not recorded.
        directory: The sweep.
    """
    unknown = sorted(name for name in trainings if name is not None and name not in directory.environments)
    if unknown and directory.environments:
        fault = (
            f"{sum(trainings[name] for name in unknown):,} trainings of environments that {SWEEP_FILE} does not name"
        )
        problem = Problem(f"{fault}: {', '.join(unknown)}", f"restore {SWEEP_FILE} from a copy of the directory")
        return [Check("environments of the trainings", (problem,))]
    if not are_several(trainings, [directory]):
        return []
    words = types_in_words(trainings, [directory])
    return [Check(f"trained on machines of several types, between which last bits may differ: {words}")]
