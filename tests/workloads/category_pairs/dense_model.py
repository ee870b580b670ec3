"""The full models as the paper writes them: token matrices X of N + M rows, multiplied out. Axes: as in full_model."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from attnsweep.workloads.category_pairs.full_model import FullModel
from attnsweep.workloads.engine.plain_forms import layer_norm


def dense_predict(model: FullModel, text_BM: Tensor, *, softmax: bool, skip: bool) -> Tensor:
    """(B, K) answers at positions 2..M."""
    N, M = model.n_categories, model.n_positions
    dtype = model.v_VV.dtype
    positions = torch.eye(M, dtype=dtype).expand(text_BM.shape[0], M, M)
    tokens_BSM = torch.cat([one_hot(text_BM, N).to(dtype).mT, positions], dim=1)
    sees_positions = model.variant in ("solution_1", "solution_3")
    k, q = (_embed(value, N, M, sees_positions) for value in (model.k_SS, model.q_SS))
    v = _embed(model.v_VV, N, M, model.variant == "solution_2")
    logits_BMM = model.scale * (k @ tokens_BSM).mT @ (q @ tokens_BSM)
    weights_BMM = logits_BMM.softmax(dim=1) if softmax else logits_BMM
    out_BSM = v @ tokens_BSM @ weights_BMM
    if skip:
        out_BSM = out_BSM + tokens_BSM
    rows = {"solution_2": slice(N, N + M), "combined": slice(0, N + M)}.get(model.variant, slice(0, N))
    normal_BMV = layer_norm(out_BSM[:, rows].mT, model.gain_V, model.bias_V, model.layer_norm_eps)
    out: Tensor = model.second(torch.relu(model.first(normal_BMV)))[:, 1:, 0]
    return out


def _embed(value: Tensor, N: int, M: int, on_positions: bool) -> Tensor:
    """The matrix in N + M rows and columns, zero in rows and columns that it does not see."""
    if value.shape[0] == N + M:
        return value
    return pad(value, (N, 0, N, 0) if on_positions else (0, M, 0, M))
