"""Says which types of machine trained the rows, and finds rows whose environment nobody has recorded."""

from collections.abc import Mapping

from attnsweep.orchestrator.analysis.machines import are_several, types_in_words
from attnsweep.orchestrator.audit.problems import Check, Problem
from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE, SweepDirectory


def check_machines(trainings: Mapping[str | None, int], directory: SweepDirectory) -> list[Check]:
    """A check where there is something to say: of several types of machine, or of environments without a record.

    Args:
        trainings: How many, by the id of their environment; `None` was not recorded.
        directory: The sweep.
    """
    unknown = sorted(name for name in trainings if name is not None and name not in directory.environments)
    if unknown and directory.environments:
        what = f"{sum(trainings[name] for name in unknown):,} trainings of environments that {SWEEP_FILE} does not name"
        problem = Problem(f"{what}: {', '.join(unknown)}", f"restore {SWEEP_FILE} from a copy of the directory")
        return [Check("environments of the trainings", (problem,))]
    if not are_several(trainings, [directory]):
        return []
    words = types_in_words(trainings, [directory])
    return [Check(f"trained on machines of several types, between which last bits may differ: {words}")]
