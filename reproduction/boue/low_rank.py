"""Low-rank updates (LoRA, Hu et al. 2021, section 4.1) of a GPT whose other weights are frozen."""

from torch import Tensor

from attnsweep.workloads.attention.layers import Linear
from attnsweep.workloads.engine.constants import per_lane
from attnsweep.workloads.gpt.model import GPT


class LowRankLinear(Linear):
    """x W^t + b + scale (x A^t) B^t, with A (rank, in) in `down` and B (out, rank) in `up`."""

    def __init__(self, layer: Linear, rank: int, scale: float) -> None:
        super().__init__(layer.in_features, layer.out_features)
        self.down = Linear(layer.in_features, rank, bias=False)
        self.up = Linear(rank, layer.out_features, bias=False)
        self.scale = per_lane(scale)

    def forward(self, input: Tensor) -> Tensor:
        update: Tensor = self.up(self.down(input)) * self.scale
        return super().forward(input) + update


def add_updates(model: GPT, rank: int, scale: float = 1.0) -> None:
    """Replaces all linear layers."""
    for path, layer in [*model.named_modules()]:
        if isinstance(layer, Linear):
            owner, _, name = path.rpartition(".")
            setattr(model.get_submodule(owner), name, LowRankLinear(layer, rank, scale))


def freeze(model: GPT) -> None:
    """Turns every parameter but the updates into a buffer of its name."""
    for path, owner in [*model.named_modules()]:
        if path.rpartition(".")[2] not in ("down", "up"):
            for name, value in [*owner.named_parameters(recurse=False)]:
                delattr(owner, name)
                owner.register_buffer(name, value.detach())
