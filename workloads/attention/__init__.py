"""Parts of transformers for workloads, yours included: attention, layers, a block, masks and positions.

The layers are ordinary `nn.Module`s of ONE training; the engine of a sweep stacks those of many trainings. Values that
may differ between trainings of one program (epsilon, the scale of the logits) are buffers.
"""

from attnsweep.workloads.attention.attention import Attention
from attnsweep.workloads.attention.block import TransformerBlock
from attnsweep.workloads.attention.layers import Embedding, FeedForward, LayerNorm, Linear, LowRankLinear, sinusoids
from attnsweep.workloads.attention.sight import Sight

__all__ = [
    "Attention",
    "Embedding",
    "FeedForward",
    "LayerNorm",
    "Linear",
    "LowRankLinear",
    "Sight",
    "TransformerBlock",
    "sinusoids",
]
