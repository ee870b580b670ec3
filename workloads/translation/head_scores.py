"""Scores and labels the attention heads of translators on held-out sentences. Formulas and sources: docs/roles.md.

Axes: L lane, H head, B sentence, Q query, K key.
"""

from functools import reduce
from operator import add
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.diagnostics.roles.counts import Looks, RoleCounts, count_roles
from attnsweep.workloads.diagnostics.roles.scores import label_roles, role_scores, score_names
from attnsweep.workloads.diagnostics.shuffles import SCORES as STRUCTURE_SCORES
from attnsweep.workloads.diagnostics.shuffles import PooledStructure
from attnsweep.workloads.engine.contract import Batch, HeadScores
from attnsweep.workloads.engine.functional import over_lanes, parted
from attnsweep.workloads.engine.layout import selected
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.translation.alignment import ALIGNMENT_SCORES, AlignmentCounts, alignment_scores, count_aligned
from attnsweep.workloads.translation.data import TranslationLanes
from attnsweep.workloads.translation.grammar.tree import RELATIONS
from attnsweep.workloads.translation.looked_at import LookedAt, looked_at
from attnsweep.workloads.translation.model import TranslationModel
from attnsweep.workloads.translation.translator import LAYERS

SCORE_NAMES = (*score_names(RELATIONS), *STRUCTURE_SCORES, *ALIGNMENT_SCORES)

_LANES_AT_ONCE, _ON_A_CPU = 256, 16
"""The number of lanes scored together, on a GPU and on a CPU, which bounds the memory of attention weights. A GPU takes
as long for 16 lanes as for 256."""
_STRUCTURE_STRIDE = 4
"""Distances to structures use every fourth sentence of each length in each bucket. They are means with far less spread
than shares of hits, and on all sentences they would cost as much as all role scores together."""


def score_heads(template: TranslationModel, lanes: TranslationLanes, state: State) -> HeadScores:
    """Scores and labels the heads of L trainings, (L, 3, n_heads), in the layers encoder self, decoder self, cross.

    Args:
        template: A model of the pack's shape.
        lanes: The L trainings.
        state: Their parameters and buffers, (L, ...) by name.
    """
    all_lanes = torch.arange(len(lanes.trainings))
    at_once = torch.split(all_lanes, _ON_A_CPU if lanes.device.type == "cpu" else _LANES_AT_ONCE)
    parts = [_scores(template, lanes, state, chosen.to(lanes.device)) for chosen in at_once]
    scores = {name: np.concatenate([part[name] for part in parts]) for name in SCORE_NAMES}
    return HeadScores(scores=scores, role=label_roles(scores))


def _scores(
    template: TranslationModel, lanes: TranslationLanes, state: State, chosen: Tensor
) -> dict[str, NDArray[np.float64]]:
    parameters, buffers = parted(template, selected(state, chosen))
    attend = over_lanes(template, lambda module, batch: cast(TranslationModel, module).attention(batch))
    measures = [_Measures(layer, template.translator.shape.longest) for layer in LAYERS]
    for part in looked_at(lanes.shared, lanes.device):
        batch: Batch = {name: value.expand(len(chosen), *value.shape) for name, value in part.batch.items()}
        with torch.no_grad():
            attention = attend(parameters, buffers, batch)
        for layer, measure in zip(LAYERS, measures, strict=True):
            measure.add(attention[layer].transpose(1, 2), part)
    by_layer = [measure.scores() for measure in measures]
    return {name: np.stack([scores[name] for scores in by_layer], axis=1) for name in SCORE_NAMES}


class _Measures:
    """Accumulates the counts and distances of one layer's heads (L, H), bucket by bucket of sentences."""

    def __init__(self, layer: str, longest: int) -> None:
        self._layer = layer
        self._roles: list[RoleCounts] = []
        self._alignments: list[AlignmentCounts] = []
        self._structure = PooledStructure(longest)

    def add(self, attention_LHBQK: Tensor, part: LookedAt) -> None:
        sentences = part.sentences[self._layer]
        looks = Looks.of(attention_LHBQK, sentences)
        self._roles.append(count_roles(attention_LHBQK, sentences, looks))
        if self._layer != "cross":
            self._add_structure(attention_LHBQK, part.n_tokens[self._layer])
        elif part.alignment is not None:
            self._alignments.append(count_aligned(looks.strongest, sentences, part.alignment))

    def scores(self) -> dict[str, NDArray[np.float64]]:
        """Returns the scores of the heads, (L, H) by name; NaN for scores that do not apply to the layer."""
        roles = role_scores(reduce(add, self._roles))
        scores = dict.fromkeys(SCORE_NAMES, np.full_like(roles["positional_share"], np.nan)) | roles
        if self._layer != "cross":
            scores |= {name: value.double().cpu().numpy() for name, value in self._structure.scores().items()}
        if self._alignments:
            scores |= alignment_scores(self._alignments)
        return scores

    def _add_structure(self, attention_LHBQK: Tensor, n_tokens_B: Tensor) -> None:
        for n in sorted(set(n_tokens_B.tolist())):
            sentences_of_length = (n_tokens_B == n).nonzero()[::_STRUCTURE_STRIDE, 0]
            self._structure.add(attention_LHBQK[:, :, sentences_of_length, :n, :n])
