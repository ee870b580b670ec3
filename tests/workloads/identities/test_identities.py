"""The identities hold on a small attention module, and their charges move as gradient descent says."""

from collections.abc import Mapping
from typing import cast

import pytest
import torch
from torch import Tensor, nn

from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.identities import (
    AttentionRows,
    EqualSums,
    Flat,
    Group,
    Identity,
    KeyBias,
    Part,
    Point,
    Reader,
    RedundantBias,
    RowSums,
    low_rank,
    norm_gain,
    queries_and_keys,
    relu_neurons,
    rescaling,
    values_and_output,
)
from tests.workloads.identities.small_attention import SHAPES, SmallAttention, point_of


def weights_of(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return cast(SmallAttention, module).weights(batch)


QK = queries_and_keys("the head", (Part("query"), Part("query_bias")), (Part("key"), Part("key_bias")))
VO = values_and_output("the head", (Part("value"), Part("value_bias")), Part("output"))
NEURONS = relu_neurons("the block", (Part("first"), Part("first_bias")), Part("second"))
LOW_RANK = low_rank("the answer", Part("down"), Part("up"))
IDENTITIES: Mapping[str, Identity] = {
    "qk": QK,
    "vo": VO,
    "neurons": NEURONS,
    "low rank": LOW_RANK,
    "gains": norm_gain("the norm", (Part("gain"), Part("bias")), (Part("query"), Part("key"), Part("value"))),
    "key bias": KeyBias(name="the head", key=Part("key_bias"), query=Part("query_bias")),
    "token rows": RowSums(name="token embeddings", part=Part("token")),
    "output bias": RowSums(name="the output bias", part=Part("output_bias")),
    "embeddings": EqualSums(name="token and position embeddings", left=Part("token"), right=Part("position")),
    "value bias": RedundantBias(
        name="the value bias", bias=Part("value_bias"), readers=[Reader(Part("output_bias"), Part("output"))]
    ),
    "rows": AttentionRows(name="the head", weights=weights_of, is_causal=True),
}


def error_of(identity: Identity, **faults: str) -> float:
    return max(found.error for found in identity.errors(point_of(SmallAttention(**faults))))


@pytest.mark.parametrize("identity", IDENTITIES.values(), ids=IDENTITIES.keys())
def test_holds_on_a_correct_module(identity: Identity) -> None:
    assert error_of(identity) < 1e-15


@pytest.mark.parametrize(
    ("name", "fault", "says"),
    [
        ("key bias", {"mask": "multiplies"}, "the key bias has a gradient: the mask multiplies"),
        ("rows", {"mask": "multiplies"}, "queries see later keys: the mask multiplies"),
        ("key bias", {"logits": "transposed"}, "the logits are transposed"),
        ("rows", {"softmax": "over queries"}, "the softmax runs over queries"),
        ("qk", {"logits": "normalized keys"}, "the logits do not depend on q k^t alone"),
        ("vo", {"values": "squashed"}, "something acts between them"),
        ("neurons", {"activation": "gelu"}, "the activation is no ReLU"),
        ("low rank", {"low_rank": "squashed"}, "the product of the two low-rank factors"),
        ("token rows", {"norm": "root mean square"}, "the norm does not remove the row mean"),
        ("value bias", {"mask": "after softmax"}, "attention weights that do not sum to 1"),
        ("gains", {"norm": "read twice"}, "in another way than through these weights"),
        ("embeddings", {"embeddings": "scaled"}, "not simply added"),
    ],
)
def test_a_wrong_module_is_named(name: str, fault: dict[str, str], says: str) -> None:
    point = point_of(SmallAttention(**fault))
    assert max(found.error for found in IDENTITIES[name].errors(point)) > 1e-4
    assert says in IDENTITIES[name].reason(point)


@pytest.mark.parametrize("group", [QK, VO, NEURONS, LOW_RANK], ids=lambda group: group.kind)
def test_one_step_of_gradient_descent_moves_a_charge_by_eta_squared_times_that_of_the_gradient(group: Group) -> None:
    point, eta = point_of(SmallAttention()), 0.1
    after = stepped(point, eta)
    moved = group.charge(after) - group.charge(point.weights)
    torch.testing.assert_close(moved, eta**2 * group.charge(point.gradients), rtol=0, atol=1e-14)
    assert moved.abs().max() > 1e-8


def test_gradient_descent_conserves_the_sums_of_flat_directions() -> None:
    point = point_of(SmallAttention())
    for identity in IDENTITIES.values():
        if isinstance(identity, Flat):
            torch.testing.assert_close(
                identity.sums(stepped(point, 0.1)), identity.sums(point.weights), rtol=0, atol=1e-14
            )


def test_a_loss_that_does_not_see_a_scale_has_no_other_side() -> None:
    weights = {"direction": torch.tensor([3.0, 4.0], dtype=torch.float64)}
    gradients = {"direction": torch.tensor([-4.0, 3.0], dtype=torch.float64)}
    group = rescaling("the direction", (Part("direction"),))
    point = Point(module=SmallAttention(), batch={}, weights=weights, gradients=gradients, scale=1.0)
    assert [found.error for found in group.errors(point)] == [0.0]
    assert group.charge(weights).item() == 25.0


def test_parts_are_cut_as_tensors_are() -> None:
    state = {"weight": torch.arange(24.0).view(2, 3, 4)}
    assert torch.equal(Part("weight")[1].T.of(state), state["weight"][1].T)
    assert Part("weight")[:, 1:].row.of(state).shape == (1, 16)
    assert Part("weight").column.of(state).shape == (24, 1)


def test_a_part_of_no_parameter_is_a_mistake_with_the_names_that_exist() -> None:
    with pytest.raises(
        SpecError, match=r'identities: got .Part\("wieght"\)., expected the name of a parameter .* did you mean weight'
    ):
        Part("wieght").T.of({"weight": torch.zeros(2, 2)})


def stepped(point: Point, eta: float) -> dict[str, Tensor]:
    return {name: point.weights[name] - eta * point.gradients[name] for name in SHAPES}
