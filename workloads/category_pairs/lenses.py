"""Lenses of the category-pairs models: attention maps on a text, and the gradients as words (readable terms).

The words of system P, and of system C without softmax, are in closed form. For other models they are averaged over the
texts of a batch, and grouped by the current and the previous category. Axes: M position, N category, S token row.
"""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from attnsweep.workloads.category_pairs.categories_only import CategoriesOnly
from attnsweep.workloads.category_pairs.full_model import FullModel
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly
from attnsweep.workloads.category_pairs.words import words_of_categories, words_of_positions
from attnsweep.workloads.category_pairs.workload import CategoryPairs
from attnsweep.workloads.engine.contract import Batch, Lanes, Workload
from attnsweep.workloads.head_maps import LayerMaps, SentenceMaps, chosen
from attnsweep.workloads.lenses import Lenses
from attnsweep.workloads.words.terms import GradientWords


def _maps(workload: Workload[Any], model: nn.Module, lanes: Lanes[Any], sentence: int | None) -> SentenceMaps | None:
    """Returns a full model's attention weights on one text, for the queries at predicted positions (from 2 on)."""
    if not isinstance(model, FullModel):
        return None
    text_BM = workload.eval_batch(lanes)["text"][0]
    number = chosen(sentence, len(text_BM))
    text_M = text_BM[number]
    category_MN = one_hot(text_M, model.n_categories).to(model.v_VV)
    position_MM = torch.eye(model.n_positions).to(model.v_VV)
    token_MS = {
        "solution_1": position_MM,
        "solution_2": category_MN,
        "solution_3": position_MM,
        "combined": torch.cat([category_MN, position_MM], dim=1),
    }[model.variant]
    logit_MM = token_MS @ model.logits() @ token_MS.T
    weight_MM = logit_MM.softmax(0) if lanes.shared.attention_activation == "softmax" else logit_MM
    keys = tuple(str(category + 1) for category in text_M.tolist())
    layer = LayerMaps.of(0, keys[1:], keys, weight_MM.T[None, 1:])
    return SentenceMaps(number=number, n_sentences=len(text_BM), text=" ".join(keys), layers=(layer,))


def _closed_form_words(parameters: CategoryPairsParameters, module: nn.Module) -> GradientWords | None:
    if isinstance(module, PositionsOnly):
        return words_of_positions(module, softmax=parameters.attention_activation == "softmax")
    if isinstance(module, CategoriesOnly) and parameters.attention_activation == "identity":
        return words_of_categories(module)
    return None


def _whole_loss(module: nn.Module, batch: Batch) -> Tensor:
    """Returns the training loss. For a full model it is computed on all texts at once, not part by part."""
    if isinstance(module, FullModel):
        loss: Tensor = module(_texts(module, batch))[0] + module.leaning_loss()
        return loss
    return CategoryPairs().loss(module, batch)


def _neighbours(module: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
    """Returns the categories of the current and the previous token, in the shape of the model's predictions. This shape
    is (B, K) for full models and (K, B) for systems P and C."""
    text_BM = _texts(module, batch)
    current, previous = text_BM[:, 1:], text_BM[:, :-1]
    if not isinstance(module, FullModel):
        current, previous = current.T, previous.T
    return {"current": current, "previous": previous}


def _texts(module: nn.Module, batch: Batch) -> Tensor:
    """Returns the texts (B, M) of the batch, or the training's own fixed sample if the batch is empty."""
    return batch["text"] if batch else cast(Tensor, module.text_BM)


LENSES = Lenses(maps=_maps, groups=_neighbours, loss=_whole_loss, words=_closed_form_words)
