"""The full models: structured attention against dense token matrices, scale, flavours.

Axes: as in full_model.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from attnsweep.workloads.category_pairs.full_model import FullModel
from attnsweep.workloads.category_pairs.outcomes import reference_levels, reference_predictors
from attnsweep.workloads.category_pairs.parameters import FULL_VARIANTS, CategoryPairsParameters
from attnsweep.workloads.engine.plain_forms import layer_norm


def dense_predict(model: FullModel, text_BM: Tensor, *, softmax: bool, skip: bool) -> Tensor:
    """(B, K) answers at positions 2..M."""
    N, M = model.n_categories, model.n_positions
    dtype = model.v_VV.dtype
    positions = torch.eye(M, dtype=dtype).expand(text_BM.shape[0], M, M)
    tokens_BSM = torch.cat([one_hot(text_BM, N).to(dtype).mT, positions], dim=1)
    sees_positions = model.variant in ("solution_1", "solution_3")
    k, q = (_embed(value, N, M, sees_positions) for value in (model.k_SS, model.q_SS))
    v = _embed(model.v_VV, N, M, model.variant == "solution_2")
    logits_BMM = model.scale * (k @ tokens_BSM).mT @ (q @ tokens_BSM)
    weights_BMM = logits_BMM.softmax(dim=1) if softmax else logits_BMM
    out_BSM = v @ tokens_BSM @ weights_BMM
    if skip:
        out_BSM = out_BSM + tokens_BSM
    rows = {"solution_2": slice(N, N + M), "combined": slice(0, N + M)}.get(model.variant, slice(0, N))
    normal_BMV = layer_norm(out_BSM[:, rows].mT, model.gain_V, model.bias_V, model.layer_norm_eps)
    out: Tensor = model.second(torch.relu(model.first(normal_BMV)))[:, 1:, 0]
    return out


def _embed(value: Tensor, N: int, M: int, on_positions: bool) -> Tensor:
    """The matrix in N + M rows and columns, zero in rows and columns that it does not see."""
    if value.shape[0] == N + M:
        return value
    return pad(value, (N, 0, N, 0) if on_positions else (0, M, 0, M))


N, M = 3, 5


def _random(**values: object) -> FullModel:
    parameters = {"n_categories": N, "n_positions": M, "expectation": "sampled", "layer_norm_eps": 0.1} | values
    model = FullModel(CategoryPairsParameters.resolve(parameters)).double()
    generator = torch.Generator().manual_seed(0)
    for value in (*model.parameters(), model.target_NN):
        value.data.normal_(generator=generator)
    return model


@pytest.mark.parametrize("variant", FULL_VARIANTS)
@pytest.mark.parametrize("activation", ["identity", "softmax"])
@pytest.mark.parametrize("skip", [True, False])
def test_structured_attention_is_the_product_of_token_matrices(variant: str, activation: str, skip: bool) -> None:
    model = _random(variant=variant, attention_activation=activation, skip=skip, attention_scale="learned")
    text = torch.randint(N, (16, M), generator=torch.Generator().manual_seed(1))
    structured, dense = model.predict(text), dense_predict(model, text, softmax=activation == "softmax", skip=skip)
    torch.testing.assert_close(structured, dense, rtol=1e-10, atol=1e-10)
    weights = torch.linspace(-1.0, 1.0, structured.numel(), dtype=torch.float64).view_as(structured)
    parameters = dict(model.named_parameters())
    ours, theirs = (
        torch.autograd.grad((answer * weights).sum(), list(parameters.values())) for answer in (structured, dense)
    )
    for name, one, other in zip(parameters, ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9, msg=f"{name}: {{}}".format)


@pytest.mark.parametrize(
    ("flavour", "wanted"),
    [
        ("unconstrained", (0, 0, 0, 0)),
        ("lean_1", (64 - 25, 64 - 3, 64 - 24, 0)),
        ("lean_2", (64 - 9, 64 - 25, 64 - 5, 3)),
        ("lean_3", (64 - 25, 64 - 9, 64 - 3, 5)),
    ],
)
def test_a_flavour_penalizes_what_its_solution_leaves_zero(flavour: str, wanted: tuple[int, ...]) -> None:
    model = _random(variant="combined", flavour=flavour, flavour_weight=0.5)
    masks = (model.unwanted_SS, model.unwanted_VV, model.unwanted_HV, model.unwanted_H)
    assert tuple(int(mask.sum()) for mask in masks) == wanted
    for value, size in ((model.k_SS, 1.0), (model.v_VV, 2.0), (model.first.weight, 3.0), (model.second.weight, 4.0)):
        value.data.fill_(size)
    model.q_SS.data = torch.eye(N + M).double()
    squares = (1.0, 4.0, 9.0, 16.0)
    assert model.leaning_loss().item() == pytest.approx(
        0.5 * sum(count * square for count, square in zip(wanted, squares, strict=True))
    )


def test_reference_levels_are_those_of_the_best_predictors() -> None:
    target = _random(variant="solution_3").target_NN
    levels, answers = reference_levels(target), reference_predictors(target)
    known: dict[str, Callable[[tuple[int, ...]], Any]] = {
        "cur": lambda pair: pair[1],
        "prev": lambda pair: pair[0],
        "unordered": lambda pair: sorted(pair),
        "mean": lambda pair: len(pair),
    }
    pairs = list(itertools.product(range(N), repeat=2))
    for name, of in known.items():
        for pair in pairs:
            alike = [target[other] for other in pairs if of(other) == of(pair)]
            torch.testing.assert_close(answers[name][pair], torch.stack(alike).mean())
    residual = target - answers["additive"]
    assert torch.cat([residual.sum(0), residual.sum(1)]).abs().max() < 1e-12
    assert levels["solved"] == 0.01 * target.var(correction=0)
    assert levels["zero"] > levels["mean"] > levels["cur"] > levels["additive"]
