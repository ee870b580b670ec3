"""What a module holds besides parameters and buffers is the same for all trainings of a program, or refused."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.constants import digest_of, first_difference, per_lane
from attnsweep.workloads.engine.construction import starting_state
from attnsweep.workloads.engine.plain import check_as_plain
from attnsweep.workloads.errors import SpecError
from tests.refusals import refused
from tests.workloads.engine.any_module import AnyModule, AnyParameters, lanes_of

NUMBERS = torch.linspace(-1, 1, 8, dtype=torch.float64).view(2, 4)


class Holder(nn.Module):
    """Holds something, and a linear layer that is drawn."""

    def __init__(self, held: object) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)
        self.held = held

    def forward(self) -> Tensor:
        answer: Tensor = self.line(NUMBERS)
        return answer


@dataclass
class Config:
    gain: float
    widths: list[int] = field(default_factory=lambda: [1, 2])


class Plain:
    def __init__(self, gain: float) -> None:
        self.gain, self.me = gain, self


MAKERS: dict[str, Callable[[float], object]] = {
    "number": lambda gain: gain,
    "tuple": lambda gain: (1, (gain,)),
    "dataclass": Config,
    "object": Plain,
    "array": lambda gain: np.array([1.0, gain]),
    "unregistered tensor": lambda gain: torch.tensor([1.0, gain]),
    "unregistered modules": lambda gain: [nn.LayerNorm(4, eps=gain)],
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_constant_that_differs_is_found_and_an_equal_one_is_not(make: Callable[[float], object]) -> None:
    one, same, other = Holder(make(1.0)), Holder(make(1.0)), Holder(make(3.0))
    assert first_difference([one, same]) is None
    assert digest_of(one) == digest_of(same)
    found = first_difference([one, same, other])
    assert found is not None
    assert found.name.startswith("held")
    assert found.position == 2
    assert found.one != found.other
    assert digest_of(one) != digest_of(other)


def _trainings(*gains: float, **values: Any) -> list[AnyParameters]:
    return [AnyParameters(gain=gain, **values) for gain in gains]


def test_a_number_of_one_training_is_not_taken_for_all() -> None:
    workload = AnyModule(lambda each: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4, eps=each.gain)))
    expected = (
        r"1\.eps of the module: got \"the value 0\.1 in one training's module and the value 0\.2 in another's\", "
        r"expected the same value for all trainings .* at\.per_lane\(value\), or declare the parameter that sets it"
    )
    with pytest.raises(SpecError, match=expected):
        starting_state(workload, lanes_of(*_trainings(0.1, 0.1, 0.2)))
    starting_state(workload, lanes_of(*_trainings(0.1, 0.1)))


def _closing_over(gain: float) -> Callable[[Tensor], Tensor]:
    return lambda value: gain * value


HIDING: dict[str, Callable[[float], Callable[[Tensor], Tensor]]] = {
    "closure": _closing_over,
    "two functions": lambda gain: (lambda value: 2 * value) if gain < 2 else (lambda value: 3 * value),
}


@pytest.mark.parametrize("make", HIDING.values(), ids=HIDING)
def test_a_number_that_no_attribute_shows_is_found_by_its_effect(make: Callable[[float], Any]) -> None:
    def attended(module: Any) -> Tensor:
        """The weights are 0 at the start, where no factor of them has an effect."""
        answer: Tensor = module.held(NUMBERS @ module.line.weight).softmax(-1)
        return answer

    def build(parameters: AnyParameters) -> nn.Module:
        module = Holder(make(parameters.gain))
        nn.init.zeros_(module.line.weight)
        return module

    with refused("the loss", SpecError):
        check_as_plain(AnyModule(build, attended), lanes_of(*_trainings(1.0, 3.0, init_sigma=None)).trainings)
    check_as_plain(AnyModule(build, attended), lanes_of(*_trainings(1.0, 1.0, init_sigma=None)).trainings)


class Scaled(nn.Module):
    def __init__(self, parameters: AnyParameters) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)
        self.gain = per_lane(parameters.gain)

    def forward(self) -> Tensor:
        answer: Tensor = self.gain * self.line(NUMBERS)
        return answer


def test_a_number_per_lane_differs_between_the_trainings_of_one_program() -> None:
    workload, lanes = AnyModule(Scaled), lanes_of(*_trainings(0.1, 0.2, n_steps=3, init_sigma=None))
    _, buffers, template = starting_state(workload, lanes)
    assert buffers["gain"].tolist() == [0.1, 0.2]
    assert digest_of(template) == digest_of(starting_state(workload, lanes_of(*_trainings(3.0)))[2])
    check_as_plain(workload, lanes.trainings)
