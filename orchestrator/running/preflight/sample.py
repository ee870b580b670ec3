"""Some trainings of a sweep, drawn at random from its space, whatever its sampler is."""

from dataclasses import dataclass
from itertools import groupby
from typing import Any, Self

from attnsweep.orchestrator.training.tasks import training_seed
from attnsweep.search_spaces.numbered_draws import drawn_parameters
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.parameters import TrainingParameters

_TRIALS = 64


@dataclass(frozen=True)
class Sample:
    """A sample of a sweep's trainings: one of each of 64 random trials, or of each trial if there are fewer.

    Attributes:
        spec: A sweep that fits its workload.
        workload: The sweep's workload.
        shapes: The trainings, grouped by equal static parameters.
    """

    spec: Sweep
    workload: Workload[Any]
    shapes: tuple[tuple[Training[Any], ...], ...]

    @classmethod
    def of(cls, spec: Sweep, workload: Workload[Any]) -> Self:
        """Draws the trials of a sample at random.

        Raises:
            SpecError: If the workload refuses every drawn training.
        """
        drawn = sorted(drawn_parameters(spec, workload.parameters, _TRIALS)[: spec.trials], key=_shape)
        shapes = (
            tuple(Training(parameters, training_seed(spec.seed, trial, 0)) for trial, parameters in enumerate(group))
            for _, group in groupby(drawn, key=_shape)
        )
        return cls(spec, workload, tuple(shapes))


def _shape(parameters: TrainingParameters) -> str:
    return repr(parameters.static_key())
