"""The rules that decide the outcomes of systems P and C, which cannot overfit, as they see no text twice.

Axes: L lane, P probe.
"""

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.diagnostics import outcomes
from attnsweep.workloads.diagnostics.verdicts import AtLevel, Rule, VerdictTable
from attnsweep.workloads.engine.contract import Evidence


def _in_valley(parameters: CategoryPairsParameters, evidence: Evidence) -> NDArray[np.bool_]:
    level = evidence.metrics["eval_loss"]
    if "valley" not in evidence.levels:
        return np.zeros_like(level, dtype=np.bool_)
    opposed = np.sign(evidence.metrics["alpha"]) * np.sign(evidence.metrics["beta"]) < 0
    below = level < 1 / parameters.n_categories
    return np.asarray(opposed & below & (level > evidence.levels["valley"][:, None]))


def _is_still(_: object, evidence: Evidence) -> NDArray[np.bool_]:
    return outcomes.gamma(evidence) < outcomes.STATIONARY_GAMMA


_BELOW_ZERO = "a flat curve below the zero level: the predictor uses part of the input"

REDUCED = VerdictTable(
    (
        Rule.diverged(looks="the curve shoots up within a few steps; large `init_sigma` x `learning_rate`"),
        Rule.solved(
            "level < `loss_level`: 0.05 (1 - 1/N)/M for system P, 0.01 under softmax, 0.01 Var Y for system C",
            "the curve falls in steps, from plateau to plateau, then to 0",
        ),
        Rule(
            outcome="runaway",
            details=("valley",),
            when=_in_valley,
            says="system P without softmax: alpha beta < 0, level < 1/N, level > (1 - 1/N)/M",
            looks="the level creeps down towards (1 - 1/N)/M while the norms of q and v grow",
        ),
        AtLevel(
            outcome="degenerate_zero",
            level="zero",
            when=_is_still,
            says="that of the predictor 0",
            also=f"gamma < {outcomes.STATIONARY_GAMMA:g}",
            looks="a flat curve at the loss of predicting 0",
        ),
        AtLevel(outcome="marginal", level="mean", says="that of the mean category", looks=_BELOW_ZERO),
        AtLevel(
            outcome="marginal", level="centred_shift", says="that of the centred shift, a saddle", looks=_BELOW_ZERO
        ),
        AtLevel(
            outcome="marginal", level="marginal", says="that of E[Y given the current category]", looks=_BELOW_ZERO
        ),
        Rule.moving(),
    )
)
