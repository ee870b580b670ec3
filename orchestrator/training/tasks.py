import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.interventions import INTERVENTION
from attnsweep.workloads.parameters import TrainingParameters, Value

if TYPE_CHECKING:
    # Trainers import this module, and start faster without these.
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
    from attnsweep.search_spaces.sweep import Sweep

Shape: TypeAlias = tuple[Value, ...]
"""The static parameters of a training: only trainings with equal ones may share a pack."""


@dataclass(frozen=True, slots=True)
class Task:
    """A training to run; `replicate` is its number in the trial.

    Attributes:
        certified_share: Probability that a certificate tests the label, if it ends stuck.
        pruned_step: The probe at which it is pruned, if known already.
    """

    trial: int
    replicate: int
    training: Training[Any]
    certified_share: float = 0.0
    pruned_step: int | None = None

    @property
    def shape(self) -> Shape:
        shape: Shape = self.training.parameters.static_key()
        return shape


def training_seed(sweep_seed: int, trial: int | str, replicate: int) -> int:
    """From 0 to 2^63 - 1. `trial`: as `seeded_by` returns it."""
    digest = hashlib.blake2b(f"{sweep_seed}/{trial}/{replicate}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def training_id(workload: str, parameters: TrainingParameters, seed: int) -> str:
    """The same on any machine."""
    content = json.dumps([workload, parameters.effective(), seed], sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=10).hexdigest()


def seeded_by(spec: "Sweep", trial: int, parameters: TrainingParameters) -> int | str:
    """What the seeds of a trial derive from: its number or, in a grid over `intervention`, all other parameters.

    So trials of such a grid that differ only in the intervention have the same seeds, and can be compared in pairs.
    Other samplers may draw a configuration twice, and need different seeds.
    """
    if spec.sampler != "grid" or INTERVENTION not in spec.varied():
        return trial
    return json.dumps({name: value for name, value in parameters.effective().items() if name != INTERVENTION})


def tasks_of(
    directory: "SweepDirectory",
    parameters: type[TrainingParameters],
    trial: int,
    values: Mapping[str, Value],
    replicates: Iterable[int],
) -> list[Task]:
    """Parameters that `values` lacks have the defaults with which the sweep began. Raises SpecError if the values
    contradict each other."""
    resolved = parameters.resolve({**directory.defaults, **values})
    origin = seeded_by(directory.spec, trial, resolved)
    seeds = ((replicate, training_seed(directory.spec.seed, origin, replicate)) for replicate in replicates)
    return [
        Task(trial, replicate, Training(resolved, seed), directory.spec.certified_share) for replicate, seed in seeds
    ]
