"""How `attnsweep heads` draws a category-pairs model on a text. Axes: M position, N category, S token row."""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import one_hot

from attnsweep.workloads.category_pairs.full_model import FullModel
from attnsweep.workloads.engine.contract import Lanes, Workload
from attnsweep.workloads.head_maps import LayerMaps, SentenceMaps, chosen
from attnsweep.workloads.lenses import Lenses


def _maps(workload: Workload[Any], model: nn.Module, lanes: Lanes[Any], sentence: int | None) -> SentenceMaps | None:
    """`None` for attention alone. At the first position nothing is predicted."""
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


LENSES = Lenses(maps=_maps)
