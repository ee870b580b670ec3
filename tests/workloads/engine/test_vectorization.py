"""What cannot be done for many trainings at once is said in one sentence, with the line where it stands."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.errors import SpecError
from tests.workloads.engine.any_module import AnyModule, AnyParameters, lanes_of

X = torch.ones(2, 4, dtype=torch.float64)


def _in_place(module: nn.Module) -> Tensor:
    total = torch.zeros(4, dtype=torch.float64)
    total[0] = module(X).sum()
    return total


LOSSES: dict[str, tuple[Callable[[nn.Module], Tensor], str]] = {
    "dropout": (lambda module: nn.functional.dropout(module(X), 0.5), "a random draw, as by nn.Dropout.*lanes.streams"),
    "if": (lambda module: module(X) if module(X).sum() > 0 else X, "a decision by the value of a tensor.*torch.where"),
    "item": (
        lambda module: module(X) * module(X).sum().item(),
        "a tensor's value as a Python number.*static parameter",
    ),
    "mask": (lambda module: module(X)[module(X) > 0], "a result whose shape depends on values.*the weight 0"),
    "nonzero": (lambda module: module(X).nonzero(), "a result whose shape depends on values.*the weight 0"),
    "in place": (_in_place, "a change in place of a tensor that all trainings share.*torch.stack"),
    "numpy": (
        lambda module: torch.tensor(module(X).detach().numpy()),
        r"a tensor's values outside of PyTorch.*compute it in PyTorch",
    ),
}


@pytest.mark.parametrize(("answer", "sentence"), LOSSES.values(), ids=LOSSES)
def test_it_is_said_in_one_sentence(answer: Callable[[nn.Module], Tensor], sentence: str) -> None:
    workload = AnyModule(lambda _: nn.Linear(4, 4), answer)
    with pytest.raises(SpecError, match=rf"^test_vectorization.py, line \d+: got ['\"]{sentence}") as caught:
        Pack(workload, lanes_of(AnyParameters()).trainings).advance(1)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_a_recurrent_layer_is_refused_and_a_cell_is_not() -> None:
    lanes = lanes_of(AnyParameters(n_steps=1))
    with pytest.raises(SpecError, match=r"no form for many trainings at once \(aten::gru.input\).*nn.GRUCell"):
        Pack(AnyModule(lambda _: nn.GRU(4, 3), lambda module: module(X[None])[0]), lanes.trainings).advance(1)
    assert Pack(AnyModule(lambda _: nn.GRUCell(4, 3), lambda module: module(X)), lanes.trainings).advance(1)


def test_another_error_is_left_as_it_is() -> None:
    workload = AnyModule(lambda _: nn.Linear(4, 4), lambda module: module(torch.ones(2, 3, dtype=torch.float64)))
    with pytest.raises(RuntimeError, match="Expected size for first two dimensions"):
        Pack(workload, lanes_of(AnyParameters()).trainings).advance(1)
