"""The rules that decide the outcomes of full models. Axes: L lane, P probe, F reference predictor."""

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.category_pairs.reference_levels import MATCHED
from attnsweep.workloads.diagnostics import outcomes
from attnsweep.workloads.diagnostics.verdicts import Rule, VerdictTable
from attnsweep.workloads.engine.contract import Evidence

DEAD_PRODUCT = 0.1
"""Without softmax, attention is dead if |k| |q| |v| is below this."""
DEAD_ABLATION = 1e-3
"""Attention is dead if replacing its output by 0 changes the answers by less than this share of Var Y."""
MATCHES = 0.03
"""A training matches a reference predictor if its answers differ from it by less than this share of Var Y."""
OVERFIT_GAP, OVERFIT_TEST, OVERFIT_TRAIN = 0.5, 0.05, 0.7
"""Overfit: train error below 0.5 times the test error, test error above 0.05 Var Y, train error below 0.7 Var Y."""


def is_dead(parameters: CategoryPairsParameters, evidence: Evidence) -> NDArray[np.bool_]:
    """Returns where ablating attention does not change the answers, (L, P) bool. Small k and q are no sign of that:
    under softmax they make attention uniform, not absent.
    """
    unread = evidence.metrics["ablation"] < DEAD_ABLATION
    if parameters.attention_activation == "softmax":
        return unread
    return unread | (evidence.metrics["attention_product"] < DEAD_PRODUCT)


def _gamma(evidence: Evidence) -> NDArray[np.float64]:
    """Returns the relative gradient |grad| |theta| / loss, (L, P), on the fixed training sample if there is one. On
    held-out texts, the gradient's sampling noise would hide a zero of the training loss.
    """
    if "train_grad_norm" not in evidence.metrics:
        return outcomes.gamma(evidence)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = evidence.metrics["train_grad_norm"] * evidence.metrics["param_norm"]
        return np.asarray(scaled / evidence.metrics["loss"])


def _train_error(evidence: Evidence) -> NDArray[np.float64]:
    return evidence.metrics.get("train_mse", evidence.metrics["loss"])


def _diverged(_: object, evidence: Evidence) -> NDArray[np.bool_]:
    zero = evidence.levels["zero"]
    return outcomes.has_diverged(evidence.metrics["eval_loss"], zero) | outcomes.has_diverged(
        _train_error(evidence), zero
    )


def _overfit(_: object, evidence: Evidence) -> NDArray[np.bool_]:
    test, train, variance = evidence.metrics["eval_loss"], _train_error(evidence), evidence.levels["mean"][:, None]
    return (train < OVERFIT_GAP * test) & (test > OVERFIT_TEST * variance) & (train < OVERFIT_TRAIN * variance)


def _at_zero(parameters: CategoryPairsParameters, evidence: Evidence) -> NDArray[np.bool_]:
    return (_gamma(evidence) < outcomes.STATIONARY_GAMMA) & is_dead(parameters, evidence)


def _matches(evidence: Evidence) -> NDArray[np.float64]:
    return np.stack([evidence.metrics[f"match_{name}"] for name in MATCHED], axis=2)


def _nearest(evidence: Evidence) -> NDArray[np.str_]:
    matches_LPF = _matches(evidence)
    nearest: NDArray[np.str_] = np.array(MATCHED)[np.argmin(np.nan_to_num(matches_LPF, nan=np.inf), axis=2)]
    return nearest


def _is_matched(_: object, evidence: Evidence) -> NDArray[np.bool_]:
    matched: NDArray[np.bool_] = _matches(evidence).min(axis=2) < MATCHES
    return matched


FULL = VerdictTable(
    (
        Rule(
            outcome="diverged",
            when=_diverged,
            says=f"loss not finite, or test or training loss > {outcomes.DIVERGED_FACTOR:g} E Y^2 and above its own "
            "start",
        ),
        Rule.solved("test loss < 0.01 Var Y"),
        Rule(
            outcome="overfit",
            when=_overfit,
            says=f"training loss < {OVERFIT_GAP} test loss, test loss > {OVERFIT_TEST} Var Y, training loss < "
            f"{OVERFIT_TRAIN} Var Y",
        ),
        Rule(
            outcome="degenerate_zero",
            details=MATCHED,
            which=_nearest,
            when=_at_zero,
            says=f"gamma < {outcomes.STATIONARY_GAMMA:g}, and attention is dead: removing it moves the answers by less "
            f"than {DEAD_ABLATION} Var Y, or (without softmax) the product of the norms of k, q and v is below "
            f"{DEAD_PRODUCT}; the detail is the nearest f",
        ),
        Rule(
            outcome="marginal",
            details=MATCHED,
            which=_nearest,
            when=_is_matched,
            says=f"the smallest D_f is below {MATCHES}; the detail is the nearest f",
        ),
        Rule.moving(),
    )
)
