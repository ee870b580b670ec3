"""What a probe computes of one training."""

import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Batch, P, Workload
from attnsweep.workloads.engine.layout import under

DESCENDED = "descended"
"""The prefix, in a probe's batch, of what the optimizer already knows."""


def examined(workload: Workload[P], module: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """One training's `eval_loss`, and its measures, which take no gradient."""
    descended = under(DESCENDED, batch)
    own = {name: value for name, value in batch.items() if not name.startswith(f"{DESCENDED}/")}
    own |= workload.answers(module, own)
    eval_loss = workload.eval_loss(module, own)
    with torch.no_grad():
        return eval_loss, workload.measure(module, own | descended)
