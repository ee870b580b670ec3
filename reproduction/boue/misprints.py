"""The misprints of Boue 2025, with the error that the printed form causes if it is taken literally, where it can be
computed.

Axes: B sequence, H head, Q query, K key, C, E channels.
"""

import copy
import math

import torch
from torch import Tensor

from attnsweep.reproduction.boue.models import Kept, next_logits, random_batch, random_model
from attnsweep.workloads.attention.attention import Attention, Sight, by_head
from attnsweep.workloads.gpt.model import GPTShape
from attnsweep.workloads.gpt.workload import GPTWorkload

_SHAPE = GPTShape(n_words=11, n_context=9, d_model=12, n_heads=2, activation="gelu")


class MaskThatMultiplies(Attention):
    """Attention with the causal mask as equation 13 prints it: logits above the diagonal are multiplied by 0."""

    def attend(self, asking_BQD: Tensor, key_BHKC: Tensor, value_BHKE: Tensor, sight: Sight) -> tuple[Tensor, Tensor]:
        """Computes attention like `Attention.attend`, with a mask that multiplies the logits."""
        query_BHQC = by_head(self.query(asking_BQD) * self.factor(sight), value_BHKE.shape[1])
        weight_BHQK = torch.softmax(query_BHQC @ key_BHKC.mT * (sight.bias_BQK.unsqueeze(1) == 0), -1)
        return self.out((weight_BHQK @ value_BHKE).transpose(1, 2).flatten(2)), weight_BHQK


def misprints() -> list[list[str]]:
    """Returns a table of the misprints: place, printed form, right form, and the printed form's error in our model."""
    future, share = multiplying_mask()
    low, high = (epsilon_added_to_the_deviation(eps) for eps in (1e-5, 0.3))
    return [
        ["place", "printed", "right", "the printed form gives"],
        [
            "(13), (18), Tables 1: causal mask",
            "m * Z, zeros, then softmax",
            "Z + (-inf above)",
            f"{future:.2f} of each row's weight on later tokens; b_k's gradient is {share:.1%} of the whole",
        ],
        [
            "section 7, low rank on logits",
            "D_11 = alpha D_12 (d u)^t",
            "D_12 (w_11 + alpha d u)^t",
            f"relative error {low_rank_without_the_weight():.2f}; at u = 0 nothing below the head would learn",
        ],
        ["(43)", "usually alpha = r", "scale alpha / r (Hu et al. 2021)", "a convention: ours stores the scale"],
        ["(17)", "w_v in R^(d_h)", "R^(d x d_h)", "a shape"],
        ["(14)", "sum over t' of rho(t = t')", "sum over t' of rho_(t* t')", "a reading"],
        [
            "KV cache, softmax of the last row",
            "without 1/sqrt(d_rho); output R^((n+1) x d_h)",
            "with it; R^(d_h)",
            f"logits off by {cache_without_scale():.2f}; with it by {cache_with_scale():.0e}",
        ],
        ["(50)", "row i: a_i.b_1 ... a_i.b_n", "a_i.b_i everywhere in row i", "a slip; the next display is right"],
        ["(53), (54)", "lambda_i = v_i.b", "h_i.b", "a letter"],
        ["section 1", "y_gt(t*) = t* + 1", "t_(*+1)", "the next token, not the next number"],
        ["section 5, step 1", '"LN in eq. (41) of [1]"', "BN", "a reference"],
        ["D_12", "y_pred - y_gt", "times the token's weight m_i", "right for the sum over all tokens only"],
        ["section 3.1", "b_v has a valid contribution", "b_3 does the same", "see the last row above"],
        [
            "(40), epsilon",
            "none anywhere",
            "exact inside the root; else the third term times (s + eps)/s",
            f"relative error {low:.1e} at 1e-5, {high:.2f} at 0.3, if epsilon is added to the deviation",
        ],
    ]


def multiplying_mask() -> tuple[float, float]:
    """Measures two errors that the mask makes as it is printed in equation 13.

    They are the mean share of attention on later tokens, and the share of the key bias in the gradient's norm.
    """
    model, batch = random_model(_SHAPE), random_batch(_SHAPE.n_words)
    block = model.blocks[0]
    block.attention.__class__ = MaskThatMultiplies
    weights = model.trace(batch["token"])[1][0].detach()
    values = dict(model.named_parameters())
    gradients = torch.autograd.grad(GPTWorkload().loss(model, batch), list(values.values()))
    by_name = dict(zip(values, gradients, strict=True))
    norm = math.sqrt(sum(float(value.square().sum()) for value in gradients))
    return float(weights.triu(1).sum(-1).mean()), float(by_name["blocks.0.attention.key.bias"].norm()) / norm


def low_rank_without_the_weight() -> float:
    """Returns the relative error of the gradient below the head as printed, without the factor of the frozen weight."""
    draw = torch.Generator().manual_seed(3)
    D, w, d, u = (
        torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in ((7, 11), (12, 11), (12, 3), (3, 11))
    )
    update = d @ u / math.sqrt(12 * 3)
    right = D @ (w + update).T
    return float((D @ update.T - right).norm() / right.norm())


def cache_without_scale() -> float:
    """Returns the largest error of the last token's logits if a step with a key-value cache is unscaled, as printed."""
    return _cache_error(scale=1.0)


def cache_with_scale() -> float:
    """Returns the largest error of the last token's logits if the step with a key-value cache scales its scores."""
    return _cache_error(scale=None)


def epsilon_added_to_the_deviation(eps: float) -> float:
    """Returns the relative error of equation 40 if LayerNorm is (x - mean) / (s + eps), s the standard deviation."""
    draw = torch.Generator().manual_seed(4)
    x, D = (torch.randn(7, 12, generator=draw, dtype=torch.float64) for _ in range(2))
    x.requires_grad_()
    s = x.std(-1, keepdim=True, correction=0)
    normal = (x - x.mean(-1, keepdim=True)) / (s + eps)
    (right,) = torch.autograd.grad(normal, x, D)
    with torch.no_grad():
        printed = (D - D.mean(-1, keepdim=True) - normal * (normal * D).mean(-1, keepdim=True)) / (s + eps)
        return float((printed - right).norm() / right.norm())


def _cache_error(scale: float | None) -> float:
    model, token_BT = random_model(_SHAPE), random_batch(_SHAPE.n_words)["token"]
    other = copy.deepcopy(model)
    kept: list[Kept] = []
    with torch.no_grad():
        if scale is not None:
            other.blocks[0].get_buffer("attention.scale").fill_(scale)
        for token_B in token_BT.T:
            last_BV = next_logits(other, token_B, kept)
        return float((last_BV - model(token_BT)[:, -1]).abs().max())
