"""Equations that the exact gradients of systems P and C (attention alone) and of the full models satisfy at all
weights: a check of computed gradients.
"""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn

from attnsweep.workloads.category_pairs import categories_only, positions_only
from attnsweep.workloads.category_pairs.categories_only import CategoriesOnly
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.identities import (
    AttentionRows,
    ClosedForm,
    Identity,
    NoGradient,
    Part,
    Reader,
    RedundantBias,
    RowSums,
    norm_gain,
    queries_and_keys,
    relu_neurons,
    rescaling,
)


def identities_of(parameters: CategoryPairsParameters) -> tuple[Identity, ...]:
    return tuple(_identities_of_full_model(parameters) if parameters.is_full else _identities_of_system(parameters))


def _identities_of_system(parameters: CategoryPairsParameters) -> Iterator[Identity]:
    is_positions = parameters.variant == "positions_only"
    logits, values = (Part("q_MK"), Part("v_NN")) if is_positions else (Part("q_NN"), Part("v_KM"))
    if parameters.attention_activation == "softmax":
        yield RowSums(name="the logits of a reader", part=logits.T, because="softmax")
        if is_positions:
            yield AttentionRows(name="attention to positions", weights=_weights_of_positions)
        return
    yield rescaling("attention and values", (logits,), (values,))
    if parameters.expectation == "population":
        yield _CLOSED_FORM_OF_POSITIONS if is_positions else _CLOSED_FORM_OF_CATEGORIES


def _identities_of_full_model(parameters: CategoryPairsParameters) -> Iterator[Identity]:
    logits = (Part("q_SS").T,), (Part("k_SS").T,)
    yield queries_and_keys("the head", *logits)
    if parameters.attention_scale != "learned":
        yield NoGradient(name="log_scale", part=Part("log_scale"), because="attention_scale is not learned")
    if parameters.variant == "combined" and parameters.flavour != "unconstrained":
        return  # The loss has a penalty that pulls single weights to 0, so the symmetries below do not hold.
    first, first_bias = Part("first.weight").T, Part("first.bias")
    yield RowSums(name="what values write", part=Part("v_VV").T)
    yield norm_gain("the norm", (Part("gain_V"), Part("bias_V")), (first,))
    yield RedundantBias(name="the norm's bias", bias=Part("bias_V"), readers=(Reader(first_bias, first),))
    yield relu_neurons("the feed-forward part", (first, first_bias), Part("second.weight").T)
    if parameters.attention_activation == "identity":
        yield rescaling("queries and values", (Part("q_SS"),), (Part("v_VV"),))


def _weights_of_positions(module: nn.Module, _: Batch) -> Tensor:
    return cast(PositionsOnly, module).attention().mT


def _gradients_of_positions(module: nn.Module, _: Batch) -> Batch:
    system = cast(PositionsOnly, module)
    return {"q_MK": positions_only.by_attention(system), "v_NN": positions_only.by_values(system)}


def _gradients_of_categories(module: nn.Module, _: Batch) -> Batch:
    system = cast(CategoriesOnly, module)
    n_categories = system.target_NN.shape[0]
    task = categories_only.Task(
        q_NN=system.q_NN,
        v_KM=system.v_KM,
        target_NN=system.target_NN,
        law_N=torch.full((n_categories,), 1 / n_categories, dtype=torch.float64),
    )
    return {"q_NN": 2 * categories_only.half_by_attention(task), "v_KM": 2 * categories_only.half_by_values(task)}


_CLOSED_FORM_OF_POSITIONS = ClosedForm(name="system P", source=positions_only.SOURCE, gradients=_gradients_of_positions)
_CLOSED_FORM_OF_CATEGORIES = ClosedForm(
    name="system C", source=categories_only.SOURCE, gradients=_gradients_of_categories
)
