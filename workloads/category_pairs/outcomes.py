"""How category-pairs trainings get their outcomes: losses of simple predictors, metrics, and tables of conditions.

Systems P and C cannot overfit: they are trained on all texts, or on new ones at each step. docs/outcomes.md states the
rules. Axes: N category, B text, K predicted position.
"""

from functools import reduce
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import grad_and_value

from attnsweep.workloads.category_pairs.full_model import FullModel
from attnsweep.workloads.category_pairs.parameters import FULL_VARIANTS, REDUCED_VARIANTS, CategoryPairsParameters
from attnsweep.workloads.engine import outcomes
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.functional import one_lane
from attnsweep.workloads.engine.outcomes import Evidence
from attnsweep.workloads.engine.verdicts import AtLevel, Rule, Verdicting, VerdictTable

MATCHED = ("mean", "cur", "prev", "additive")

_SOLVED_SHARE = 1e-2


def reference_predictors(target_NN: Tensor) -> dict[str, Tensor]:
    """The answers of simple predictors: rows are previous categories, columns current ones. With row means r, column
    means c and grand mean g of q*, they and their losses on uniform texts are

      zero      0                         E Y^2
      mean      E[Y] = g                  mean (q* - g)^2 = Var Y
      cur       E[Y | X_i]                mean (q* - c)^2
      prev      E[Y | X_{i-1}]            mean (q* - r)^2
      additive  best f(X_{i-1}) + h(X_i)  mean (q* - r - c + g)^2
      unordered E[Y | {X_{i-1}, X_i}]     mean ((q* - q*^t) / 2)^2
    """
    grand = target_NN.mean()
    prev = target_NN.mean(1, keepdim=True)
    cur = target_NN.mean(0, keepdim=True)
    zero = target_NN.new_zeros(())
    answers = {"zero": zero, "mean": grand, "cur": cur, "prev": prev, "additive": prev + cur - grand}
    answers["unordered"] = (target_NN + target_NN.T) / 2
    return {name: answer.expand_as(target_NN) for name, answer in answers.items()}


def reference_levels(target_NN: Tensor) -> dict[str, Tensor]:
    """The losses of simple predictors; and `solved`, 1% of the target's variance."""
    levels = {name: (target_NN - answer).square().mean() for name, answer in reference_predictors(target_NN).items()}
    return levels | {"solved": _SOLVED_SHARE * levels["mean"]}


def full_measures(model: FullModel, batch: Batch) -> dict[str, Tensor]:
    """Metrics of one training on held-out texts, Y being the target.

    `match_<f>`: E(answer - f)^2 / Var Y, for a simple predictor f. `ablation`: the mean squared change of the answers,
    in units of Var Y, when attention writes 0. `attention_product`: |k| |q| |v|, or |k^t q| |v| if k^t q is trained. On
    a fixed sample also `train_mse`, without a flavour's added loss, and `train_grad_norm`: on held-out texts the
    gradient does not vanish where training stops.
    """
    text_BM, answer_BK = batch["text"], batch["answer"]
    variance = (model.target_NN - model.target_NN.mean()).square().mean()
    references = reference_predictors(model.target_NN)
    previous_BK, current_BK = text_BM[:, :-1], text_BM[:, 1:]
    measures = {
        f"match_{name}": (answer_BK - references[name][previous_BK, current_BK]).square().mean() / variance
        for name in MATCHED
    }
    measures["ablation"] = (answer_BK - model.predict_unattended(text_BM)).square().mean() / variance
    norms = (matrix.square().sum().sqrt() for matrix in model.factors())
    measures["attention_product"] = reduce(torch.mul, norms)
    if model.has_sample:
        measures |= _train_measures(model, batch)
    return measures


def _train_measures(model: FullModel, batch: Batch) -> dict[str, Tensor]:
    if "train_loss" in batch:
        error = batch["train_loss"] - model.leaning_loss()
        return {"train_mse": error, "train_grad_norm": batch["train_grad_norm"]}

    def loss_and_error(module: nn.Module, _: Batch) -> tuple[Tensor, Tensor]:
        full_model = cast(FullModel, module)
        error, _ = full_model(full_model.text_BM)
        return error + full_model.leaning_loss(), error

    loss = one_lane(model, loss_and_error)
    gradients, (_, error) = grad_and_value(loss, has_aux=True)(dict(model.named_parameters()), {}, {})
    squares = torch.stack([gradient.square().sum() for gradient in gradients.values()])
    return {"train_mse": error, "train_grad_norm": squares.sum().sqrt()}


def _in_valley(parameters: CategoryPairsParameters, evidence: Evidence) -> NDArray[np.bool_]:
    level = evidence.metrics["eval_loss"]
    if "valley" not in evidence.levels:
        return np.zeros_like(level, dtype=np.bool_)
    opposed = np.sign(evidence.metrics["alpha"]) * np.sign(evidence.metrics["beta"]) < 0
    below = level < 1 / parameters.n_categories
    return np.asarray(opposed & below & (level > evidence.levels["valley"][:, None]))


REDUCED = VerdictTable(
    (
        Rule.diverged(),
        Rule.solved(),
        Rule(outcome="runaway", details=("valley",), when=_in_valley),
        AtLevel(
            outcome="degenerate_zero",
            level="zero",
            when=lambda _, evidence: outcomes.gamma(evidence) < outcomes.STATIONARY_GAMMA,
        ),
        AtLevel(outcome="marginal", level="mean"),  # that of the mean category
        AtLevel(outcome="marginal", level="centred_shift"),  # that of the centred shift, a saddle
        AtLevel(outcome="marginal", level="marginal"),  # that of E[Y given the current category]
        Rule.moving(),
    )
)


DEAD_PRODUCT = 0.1
"""Without softmax, attention counts as dead if the product of norms |k| |q| |v| is below this."""
DEAD_ABLATION = 1e-3
"""Attention is dead if without its output the answers change by less than this share of the target's variance."""
MATCHES = 0.03
"""Answers match a simple predictor if they differ from it by less than this share of the target's variance."""
OVERFIT_GAP, OVERFIT_TEST, OVERFIT_TRAIN = 0.5, 0.05, 0.7
"""Overfit: the train error is below the first share of the test error, the test error above the second and the train
error below the third of the target's variance."""


def is_dead(parameters: CategoryPairsParameters, evidence: Evidence) -> NDArray[np.bool_]:
    """Where attention is dead, (n_trainings, n_probes). Under softmax small k and q are no sign of it: they make
    attention uniform, not absent."""
    unread = evidence.metrics["ablation"] < DEAD_ABLATION
    if parameters.attention_activation == "softmax":
        return unread
    return unread | (evidence.metrics["attention_product"] < DEAD_PRODUCT)


def _gamma(evidence: Evidence) -> NDArray[np.float64]:
    """On held-out texts the gradient's sampling noise would hide a zero of the training loss's gradient."""
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


def _matches(evidence: Evidence) -> NDArray[np.float64]:
    return np.stack([evidence.metrics[f"match_{name}"] for name in MATCHED], axis=2)


def _nearest(evidence: Evidence) -> NDArray[np.str_]:
    nearest: NDArray[np.str_] = np.array(MATCHED)[np.argmin(np.nan_to_num(_matches(evidence), nan=np.inf), axis=2)]
    return nearest


FULL = VerdictTable(
    (
        Rule(outcome="diverged", when=_diverged),
        Rule.solved(),
        Rule(outcome="overfit", when=_overfit),
        Rule(
            outcome="degenerate_zero",
            details=MATCHED,
            which=_nearest,
            when=lambda own, evidence: (_gamma(evidence) < outcomes.STATIONARY_GAMMA) & is_dead(own, evidence),
        ),
        Rule(
            outcome="marginal",
            details=MATCHED,
            which=_nearest,
            when=lambda _, evidence: _matches(evidence).min(axis=2) < MATCHES,
        ),
        Rule.moving(),
    )
)

VERDICTS: Verdicting = dict.fromkeys(REDUCED_VARIANTS, REDUCED) | dict.fromkeys(FULL_VARIANTS, FULL)
