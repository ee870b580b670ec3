"""The exact entropies of drawn languages. Axes: L lane, V word."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from attnsweep.workloads.gpt.tasks import Laws


def table_entropies(table_LVV: Tensor) -> tuple[Tensor, Tensor]:
    """H(Y) and H(Y | current token), (L,) in nats."""
    current_LVV = one_hot(table_LVV, table_LVV.shape[-1]).double().mean(1)
    return _entropy(current_LVV.mean(1)), _entropy(current_LVV).mean(1)


def chain_entropies(laws: Laws) -> tuple[Tensor, Tensor, Tensor]:
    """H(Y), H(Y | current token) and the entropy rate, (L,) in nats."""
    V = laws["next"].shape[-1]
    joint_LVVV = (laws["pair"].unsqueeze(-1) * laws["next"]).unflatten(1, (V, V))
    joint_LVV, one_LV = joint_LVVV.sum(1), joint_LVVV.sum((2, 3))
    given_current = _entropy(joint_LVV.flatten(1)) - _entropy(joint_LVV.sum(-1))
    return _entropy(one_LV), given_current, (laws["pair"] * _entropy(laws["next"])).sum(1)


def _entropy(law: Tensor) -> Tensor:
    return -torch.xlogy(law, law).sum(-1)
