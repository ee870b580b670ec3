"""The measures that decide the outcome of a full model. Axes of one training: B text, K predicted position.

docs/outcomes.md, the full models, states the rules that use these measures.
"""

from functools import reduce
from typing import cast

import torch
from torch import Tensor, nn
from torch.func import grad_and_value

from attnsweep.workloads.category_pairs.full_model import FullModel
from attnsweep.workloads.category_pairs.reference_levels import MATCHED, reference_predictors
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.functional import one_lane


def full_measures(model: FullModel, batch: Batch) -> dict[str, Tensor]:
    """Computes the metrics of one training from its answers (B, K) to held-out texts (B, M): scalars by name.

    `match_<f>`: D_f = E(answer - f)^2 / Var Y. `ablation`: the mean squared change of the answers, in units of Var Y,
    when attention writes 0. `attention_product`: |k| |q| |v|, or |k^t q| |v| if k^t q is trained. With a fixed sample,
    two more on that sample: `train_mse`, the error without a flavour's added loss, and `train_grad_norm`, the gradient
    norm of the training loss (on held-out texts the gradient does not vanish where training stops).
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
    measures["attention_product"] = reduce(torch.mul, map(_norm, model.factors()))
    if model.has_sample:
        measures |= _train_measures(model, batch)
    return measures


def _train_measures(model: FullModel, batch: Batch) -> dict[str, Tensor]:
    if "train_loss" in batch:
        error = batch["train_loss"] - model.leaning_loss()
        return {"train_mse": error, "train_grad_norm": batch["train_grad_norm"]}

    def loss_and_error(module: nn.Module, _: Batch) -> tuple[Tensor, Tensor]:
        full_model = cast(FullModel, module)
        error = full_model.mean_squared_error(full_model.text_BM)
        return error + full_model.leaning_loss(), error

    loss = one_lane(model, loss_and_error)
    gradients, (_, error) = grad_and_value(loss, has_aux=True)(dict(model.named_parameters()), {}, {})
    squares = torch.stack([gradient.square().sum() for gradient in gradients.values()])
    return {"train_mse": error, "train_grad_norm": squares.sum().sqrt()}


def _norm(matrix: Tensor) -> Tensor:
    return matrix.square().sum().sqrt()
