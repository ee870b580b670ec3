"""Single-head attention over one-hot tokens, without products with the matrix of tokens.

A token X_i is a one-hot category (N) stacked on a one-hot position (M). The logits are X^t k^t q X, and the output is
Z = value (sum_j weights_ji X_j) + residual X_i. One-hot categories select rows (by products: the backward pass of
indexing is slow), and one-hot positions are an identity. The attention is not causal.

Axes of one training: M position (j read from, i read at), K = M - 1 position without the first, N category, B text,
S = N + M token row, O output row.
Source: Shin & Matzinger 2025, section 2 (docs/notes/2026-11-21-theory.md, category pairs).
"""

import torch
from torch import Tensor


def one_hot_texts(text_BM: Tensor, n_categories: int, dtype: torch.dtype) -> Tensor:
    categories = torch.arange(n_categories, device=text_BM.device)
    return (text_BM.unsqueeze(-1) == categories).to(dtype)


def attend_by_position(
    logits_MM: Tensor, value_ON: Tensor, residual_ON: Tensor, one_hot_BMN: Tensor, *, softmax: bool
) -> Tensor:
    """Logits by positions, values and skip connection by categories: (O, B, K). Outputs come first because they are
    few: a sum over them then adds long vectors of tokens."""
    weights_MM = logits_MM.softmax(dim=0) if softmax else logits_MM
    one_hot_NBM = one_hot_BMN.permute(2, 0, 1).contiguous()
    current_NBK = one_hot_NBM[:, :, 1:]
    context_NBK = (one_hot_NBM.flatten(0, 1) @ weights_MM[:, 1:]).view(current_NBK.shape)
    written = value_ON @ context_NBK.flatten(1) + residual_ON @ current_NBK.flatten(1)
    return written.view(-1, *current_NBK.shape[1:])


def attend_by_category(
    logits_NN: Tensor, value_OM: Tensor, residual_OM: Tensor, one_hot_BMN: Tensor, *, softmax: bool
) -> Tensor:
    """Logits by categories, values and skip connection by positions: (B, M, O). Tokens of one category in a text share
    their weights, which are computed once."""
    logits_MBN = one_hot_BMN.transpose(0, 1).contiguous() @ logits_NN
    weights_MBN = logits_MBN.softmax(dim=0) if softmax else logits_MBN
    return one_hot_BMN @ _by_text(value_OM, weights_MBN) + residual_OM.T


def attend_by_token(
    logits_SS: Tensor, value_OS: Tensor, residual_OS: Tensor, one_hot_BMN: Tensor, *, softmax: bool
) -> Tensor:
    """Logits, values and skip connection by category and position: (B, M, O)."""
    N = one_hot_BMN.shape[2]
    one_hot_MBN = one_hot_BMN.transpose(0, 1).contiguous()
    # A query's logit for a key is the sum of one for the key's category and one for its position. The latter is a
    # matrix only with softmax.
    asks_category_BMN = one_hot_BMN @ logits_SS[:N, :N].T + logits_SS[:N, N:].T
    residual_MO = residual_OS[:, N:].T
    if softmax:
        asks_position_BMM = one_hot_BMN @ logits_SS[N:, :N].T + logits_SS[N:, N:].T
        weights_BMM = (asks_category_BMN @ one_hot_BMN.mT + asks_position_BMM).softmax(dim=2)
        read_BMS = torch.cat([weights_BMM @ one_hot_BMN, weights_BMM], dim=2)
        return read_BMS @ value_OS.T + one_hot_BMN @ residual_OS[:, :N].T + residual_MO
    # Without softmax the sums over keys are the same for all queries: the output is `left`, (B, M, 3 N), what a query
    # is, asks, and gets from positions, times `right`, (B, 3 N, O), what its text holds; and a term by position.
    tokens_BNO = _by_text(value_OS[:, N:], one_hot_MBN) + one_hot_BMN.sum(1).unsqueeze(2) * value_OS[:, :N].T
    from_position_MBN = (logits_SS[N:, N:].T @ one_hot_MBN.flatten(1)).view_as(one_hot_MBN)
    from_category_BNN = _by_text(logits_SS[N:, :N].T, one_hot_MBN).mT
    by_category_ON = value_OS[:, N:] @ logits_SS[N:, :N] + residual_OS[:, :N]
    selected_BNO = from_category_BNN @ value_OS[:, :N].T + by_category_ON.T
    left = torch.cat([one_hot_BMN, asks_category_BMN, from_position_MBN.transpose(0, 1)], dim=2)
    right = torch.cat([selected_BNO, tokens_BNO, value_OS[:, :N].T.expand_as(tokens_BNO)], dim=1)
    by_position_MO = (value_OS[:, N:] @ logits_SS[N:, N:]).T + residual_MO
    return left @ right + by_position_MO


def _by_text(weights_OM: Tensor, read_MBN: Tensor) -> Tensor:
    """The product over positions, (B, N, O)."""
    _, n_texts, n_categories = read_MBN.shape
    summed_OBN = (weights_OM @ read_MBN.flatten(1)).view(-1, n_texts, n_categories)
    return summed_OBN.permute(1, 2, 0).contiguous()
