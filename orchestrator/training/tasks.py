"""The tasks of a sweep. A task is one training together with its trial, its number in the trial (replicate), its seed
and its id."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.interventions import INTERVENTION
from attnsweep.workloads.parameters import TrainingParameters, Value

if TYPE_CHECKING:
    # Trainers import this module, and the fingerprint of their code covers all modules that they import. The two
    # modules below are imported only for type checkers, so that they do not count in the fingerprint.
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
    from attnsweep.search_spaces.sweep import Sweep

Shape: TypeAlias = tuple[Value, ...]
"""The static parameters of a training: only trainings with equal ones may share a pack."""


@dataclass(frozen=True, slots=True)
class Task:
    """A training that a sweep is to run, together with its trial and its number in the trial (replicate).

    Attributes:
        trial, replicate: The trial's number, and the number of the training within it.
        training: The training's parameters and seed.
        certified_share: Probability that a certificate tests the training's label, if it ends stuck.
        pruned_step: The probe at which the training is pruned, if that is known already.
    """

    trial: int
    replicate: int
    training: Training[Any]
    certified_share: float = 0.0
    pruned_step: int | None = None

    @property
    def shape(self) -> Shape:
        """The static parameters of the training. Trainings can share a batched program (pack) if and only if these are
        equal."""
        shape: Shape = self.training.parameters.static_key()
        return shape


def training_seed(sweep_seed: int, trial: int | str, replicate: int) -> int:
    """Returns the seed of a training, from 0 to 2^63 - 1. It depends only on the sweep's seed, the trial and the
    training's number in the trial.

    Args:
        trial: The trial's number, or the configuration whose trials share seeds: see `seeded_by`.
    """
    digest = hashlib.blake2b(f"{sweep_seed}/{trial}/{replicate}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def training_id(workload: str, parameters: TrainingParameters, seed: int) -> str:
    """Returns the id of a training: a hash of workload, parameters and seed, which is the same on any machine."""
    content = json.dumps([workload, parameters.effective(), seed], sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=10).hexdigest()


def seeded_by(spec: "Sweep", trial: int, parameters: TrainingParameters) -> int | str:
    """Returns what the seeds of a trial's trainings are derived from: usually the trial's number. In a grid that varies
    the intervention (a change to running trainings), it is all parameters of the trial but the intervention.

    So trials of such a grid that differ only in the intervention have the same seeds, and can be compared in pairs.
    Other samplers may draw a configuration twice, so their seeds depend on the number.
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
    """Returns the tasks (trainings to run) for the given replicates of one trial.

    Args:
        directory: The sweep.
        parameters: The parameters that the sweep's workload declares.
        trial: The trial's number.
        values: Parameters that the trial sets. All others have the defaults with which the sweep began.
        replicates: The numbers of the replicates.

    Raises:
        SpecError: If the values contradict each other.
    """
    resolved = parameters.resolve({**directory.defaults, **values})
    origin = seeded_by(directory.spec, trial, resolved)
    seeds = ((replicate, training_seed(directory.spec.seed, origin, replicate)) for replicate in replicates)
    return [
        Task(trial, replicate, Training(resolved, seed), directory.spec.certified_share) for replicate, seed in seeds
    ]
