"""The tasks of a sweep: each training with its place in the sweep, its seed, and the id that follows from them."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.interventions import INTERVENTION
from attnsweep.workloads.parameters import TrainingParameters, Value

if TYPE_CHECKING:
    # A trainer imports this module, and the code that it runs is fingerprinted: storage is no part of that.
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
    from attnsweep.search_spaces.sweep import Sweep

Shape: TypeAlias = tuple[Value, ...]
"""The static parameters of a training."""


@dataclass(frozen=True, slots=True)
class Task:
    """One training to run.

    Attributes:
        trial, replicate: Its place in the sweep.
        training: Its parameters and seed.
        certified_share: Probability that its label is tested by a certificate if it ends stuck.
        pruned_step: The probe at which it is pruned, if that is known already.
    """

    trial: int
    replicate: int
    training: Training[Any]
    certified_share: float = 0.0
    pruned_step: int | None = None

    @property
    def shape(self) -> Shape:
        """Equal for two trainings if and only if they may share a pack."""
        shape: Shape = self.training.parameters.static_key()
        return shape


def training_seed(sweep_seed: int, trial: int | str, replicate: int) -> int:
    """The seed of a training, 0..2^63-1.

    Args:
        trial: Its number, or the configuration whose trials share seeds: see `seeded_by`.
    """
    digest = hashlib.blake2b(f"{sweep_seed}/{trial}/{replicate}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def training_id(workload: str, parameters: TrainingParameters, seed: int) -> str:
    """Equal for two trainings if and only if workload, parameters and seed are equal, on any machine."""
    content = json.dumps([workload, parameters.identity(), seed], sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=10).hexdigest()


def seeded_by(spec: "Sweep", trial: int, parameters: TrainingParameters) -> int | str:
    """What the seeds of a trial follow from: its number, but in a grid over interventions its other parameters.

    So trials that differ in the intervention alone have the same seeds: pairs. Elsewhere a trial may be drawn twice.
    """
    if spec.sampler != "grid" or INTERVENTION not in spec.varied():
        return trial
    return json.dumps({name: each for name, each in parameters.identity().items() if name != INTERVENTION})


def tasks_of(
    directory: "SweepDirectory",
    parameters: type[TrainingParameters],
    trial: int,
    values: Mapping[str, Value],
    replicates: Iterable[int],
) -> list[Task]:
    """Some replicates of one trial.

    Args:
        directory: The sweep.
        parameters: What its workload declares.
        trial: The number of the trial.
        values: Parameters that the trial sets. The others have the default that the sweep began with.
        replicates: The numbers of the replicates.

    Raises:
        SpecError: If its values clash with each other.
    """
    resolved = parameters.resolve({**directory.defaults, **values})
    # In sweeps of version 0.1 the share was a parameter of the training.
    of_training = resolved.certified_share
    share = directory.spec.certified_share if of_training is None else of_training
    origin = seeded_by(directory.spec, trial, resolved)
    seeds = ((replicate, training_seed(directory.spec.seed, origin, replicate)) for replicate in replicates)
    return [Task(trial, replicate, Training(resolved, seed), share) for replicate, seed in seeds]
