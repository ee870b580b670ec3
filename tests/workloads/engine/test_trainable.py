"""What `build` returns that no training can start from is refused, and what stays as it is built."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.compiling.traces import NoRuleError
from attnsweep.workloads.engine.construction import check_trainable
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.plain import check_as_plain
from attnsweep.workloads.errors import SpecError
from tests.workloads.engine.any_module import AnyModule, AnyParameters, lanes_of

X = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4)


def _with(**tensors: Tensor) -> nn.Module:
    module = nn.Linear(4, 4)
    for name, value in tensors.items():
        if isinstance(value, nn.Parameter):
            module.register_parameter(name, value)
        else:
            module.register_buffer(name, value)
    return module


def _sharing() -> nn.Module:
    memory = torch.randn(6, 4)
    return _with(first=nn.Parameter(memory[:4]), second=nn.Parameter(memory[3:]))


def _snapshot() -> nn.Module:
    module = nn.Linear(4, 4)
    module.register_buffer("start", module.weight.detach())
    return module


class OptimizedModule(nn.Module):
    """Named as what torch.compile returns."""


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no module": (lambda: None, "build: got None, expected a function `build` that returns an nn.Module"),
    "compiled": (lambda: nn.Sequential(nn.Linear(4, 4), OptimizedModule()), "1: got 'a module of torch.compile or"),
    "lazy": (lambda: nn.LazyLinear(4), "weight of the module: got 'a tensor without a shape, as in nn.LazyLinear'"),
    "complex buffer": (lambda: _with(turn=torch.ones(2, dtype=torch.complex64)), "turn of the module: got 'complex"),
    "nothing to train": (nn.ReLU, "build: got 'a module without a parameter that requires gradients'"),
    "all frozen": (lambda: nn.Linear(4, 4).requires_grad_(False), "build: got 'a module without a parameter that"),
    "expanded": (
        lambda: _with(row=nn.Parameter(torch.ones(1).expand(4))),
        "row of the module: got 'entries that share memory, as made by expand'",
    ),
    "parameters in one memory": (_sharing, "first and second of the module: got 'two tensors in the same memory'"),
    "a buffer in a parameter's memory": (
        _snapshot,
        r"weight and start of the module: got .* replace one of the tensors by its \.clone",
    ),
}


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize(("build", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_trained_is_refused(build: Callable[[], object], sentence: str) -> None:
    with pytest.raises(SpecError, match=f"^{sentence}") as caught:
        check_trainable(build())
    assert "\n" not in str(caught.value)


def test_parts_of_one_memory_and_tied_weights_are_not() -> None:
    memory = torch.randn(8, 4)
    parts = _with(first=nn.Parameter(memory[:4]), second=nn.Parameter(memory[4:]), table=torch.ones(1).expand(3))
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    for module in (parts, tied):
        check_trainable(module)


class Frozen(nn.Module):
    """A layer between frozen numbers, some of which are whole, and beside a parameter without any."""

    def __init__(self) -> None:
        super().__init__()
        self.fixed, self.line = nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 4)
        self.signs = nn.Parameter(torch.tensor([[1, -1, 1, -1]]), requires_grad=False)
        self.empty = nn.Parameter(torch.zeros(0, 4))

    def forward(self) -> Tensor:
        answer: Tensor = self.line(self.fixed(X)) * self.signs + self.empty.sum()
        return answer


@pytest.mark.parametrize("init_sigma", [None, 0.5])
def test_a_frozen_parameter_stays_where_its_training_starts(init_sigma: float | None) -> None:
    parameters = [AnyParameters(n_steps=3, init_sigma=init_sigma, stop_when_solved=False)] * 2
    pack = Pack(AnyModule(lambda _: Frozen()), lanes_of(*parameters).trainings)
    _, start = pack.final_state(np.arange(2))
    pack.advance(3)
    _, end = pack.final_state(np.arange(2))
    stays = {name for name, value in end.items() if torch.equal(value, start[name])}
    assert stays == {"fixed.weight", "fixed.bias", "signs", "empty"}
    assert not torch.equal(end["fixed.weight"][0], end["fixed.weight"][1])
    assert end["signs"].tolist() == [[[1, -1, 1, -1]]] * 2
    check_as_plain(AnyModule(lambda _: Frozen()), lanes_of(*parameters).trainings)


@pytest.mark.slow
def test_an_embedding_that_scales_by_frequency_is_not_compiled() -> None:
    def build(_: AnyParameters) -> nn.Module:
        module = nn.Embedding(4, 3, scale_grad_by_freq=True)
        module.register_buffer("words", torch.tensor([0, 1, 1]))
        return module

    workload = AnyModule(build, lambda module: module(module.words))
    with pytest.raises(NoRuleError, match="scale_grad_by_freq=True"):
        Pack(workload, lanes_of(AnyParameters()).trainings).step_graph()
