"""The one head of a full model, scored at each probe by the solution that it implements. Axes: L lane."""

import numpy as np

from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.category_pairs.solution_scores import solution_scores
from attnsweep.workloads.engine.contract import HeadScores
from attnsweep.workloads.engine.optimizers import State

_BLOCKS = ("cc", "cp", "pc", "pp")
SCORE_NAMES = (
    *(f"share_logits_{block}" for block in _BLOCKS),
    *(f"share_values_{block}" for block in _BLOCKS),
    "match_logits_shift",
    "match_logits_target",
    "match_values_shift",
    "match_values_target",
    "match_values_identity",
    "solution_1",
    "solution_2",
    "solution_3",
)


def score_full_heads(parameters: CategoryPairsParameters, state: State) -> HeadScores:
    """Scores (L, 1, 1), one layer and one head, and as role `solution_1`, `_2`, `_3`, `mixed` or `none`.

    Args:
        parameters: Of any lane, for the variant.
        state: Parameters and buffers, (L, ...) by name.
    """
    logits_LSS = state["k_SS"].mT @ state["q_SS"]
    found = solution_scores(parameters.variant, logits_LSS, state["v_VV"], state["target_NN"])
    shape = (len(found.label), 1, 1)
    scores = {name: np.asarray(found.scores[name], dtype=np.float64).reshape(shape) for name in SCORE_NAMES}
    return HeadScores(scores=scores, role=found.label.reshape(shape))
