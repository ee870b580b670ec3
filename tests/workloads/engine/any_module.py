"""A workload of any module: its loss is a mean square."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Batch, Lanes, Training, Workload
from attnsweep.workloads.engine.verdicts import Rule, VerdictTable
from attnsweep.workloads.parameters import TrainingParameters, parameter


@dataclass(frozen=True, kw_only=True)
class AnyParameters(TrainingParameters):
    """With a number for which no module asks."""

    gain: float = parameter(1.0, "what a module makes of it", low=0.0)


class AnyModule(Workload[AnyParameters]):
    """Trains what a function builds.

    Args:
        build: The module of one training.
        answer: What it answers, of any shape.
    """

    name = "any_module"
    summary = "a module's answers, to be 0"
    parameters = AnyParameters
    level_names = ("zero",)
    verdicts = VerdictTable((Rule.solved(),))

    def __init__(
        self,
        build: Callable[[AnyParameters], nn.Module],
        answer: Callable[[nn.Module], Tensor] = lambda module: module(),
    ) -> None:
        self._build, self._answer = build, answer

    def build(self, parameters: AnyParameters) -> nn.Module:
        return self._build(parameters)

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        del batch
        return (1 + self._answer(module)).square().mean()

    def levels(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        del batch
        one = torch.ones((), dtype=next(module.parameters()).dtype)
        return {"zero": one, "solved": 1e-9 * one}


def lanes_of(*parameters: AnyParameters, first_seed: int = 0) -> Lanes[AnyParameters]:
    """Trainings with these parameters, and seeds from the first one on."""
    return Lanes([Training(each, seed) for seed, each in enumerate(parameters, first_seed)], torch.device("cpu"))
