"""The outcome of a full model, by the rules of docs/outcomes.md. Axes: L lane, P probe, F reference predictor."""

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.category_pairs.reference_levels import MATCHED
from attnsweep.workloads.diagnostics import outcomes
from attnsweep.workloads.engine.contract import Evidence, Verdicts

DEAD_PRODUCT = 0.1
"""Without softmax, attention is dead if |k| |q| |v| is below this."""
DEAD_ABLATION = 1e-3
"""Attention is dead if answers move by less than this share of Var Y when it writes 0."""
MATCHES = 0.03
"""A training matches a reference predictor if its answers differ from it by less than this share of Var Y."""
OVERFIT_GAP, OVERFIT_TEST, OVERFIT_TRAIN = 0.5, 0.05, 0.7
"""Overfit: train error below 0.5 times the test error, test error above 0.05 Var Y, train error below 0.7 Var Y."""


def judge_full(parameters: CategoryPairsParameters, evidence: Evidence) -> Verdicts:
    """Labels each training at each probe."""
    test = evidence.metrics["eval_loss"]
    train = evidence.metrics.get("train_mse", evidence.metrics["loss"])
    variance = evidence.levels["mean"][:, None]
    zero = evidence.levels["zero"]
    matches_LPF = np.stack([evidence.metrics[f"match_{name}"] for name in MATCHED], axis=2)
    plays = np.array(MATCHED)[np.argmin(np.where(np.isnan(matches_LPF), np.inf, matches_LPF), axis=2)]
    matched = matches_LPF.min(axis=2) < MATCHES
    diverged = outcomes.has_diverged(test, zero) | outcomes.has_diverged(train, zero)
    overfit = (train < OVERFIT_GAP * test) & (test > OVERFIT_TEST * variance) & (train < OVERFIT_TRAIN * variance)
    at_zero = (_gamma(evidence) < outcomes.STATIONARY_GAMMA) & is_dead(parameters, evidence)
    moving = outcomes.is_moving(evidence.steps, test)
    return Verdicts.first_of(
        {
            "diverged": diverged,
            "solved": test < evidence.levels["solved"][:, None],
            "overfit": overfit,
            **{("degenerate_zero", name): at_zero & (plays == name) for name in MATCHED},
            **{("marginal", name): matched & (plays == name) for name in MATCHED},
            ("plateau", "moving"): moving,
        }
    )


def is_dead(parameters: CategoryPairsParameters, evidence: Evidence) -> NDArray[np.bool_]:
    """(L, P) whether the attention branch has no effect on the answers.

    Under softmax small k and q make attention uniform, not absent, so the ablation alone decides.
    """
    unread = evidence.metrics["ablation"] < DEAD_ABLATION
    if parameters.attention_activation == "softmax":
        return unread
    return unread | (evidence.metrics["attention_product"] < DEAD_PRODUCT)


def _gamma(evidence: Evidence) -> NDArray[np.float64]:
    """|grad| |theta| / loss, on the fixed training sample if there is one: on fresh texts sampling noise hides a
    zero."""
    if "train_grad_norm" not in evidence.metrics:
        return outcomes.gamma(evidence)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = evidence.metrics["train_grad_norm"] * evidence.metrics["param_norm"]
        return np.asarray(scaled / evidence.metrics["loss"])
