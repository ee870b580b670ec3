"""Random strings of a training's own, drawn from its streams. Axes: L lane, S step, B string, N position."""

import torch
from torch import Tensor

from attnsweep.workloads.engine.streams import Streams


def random_texts(streams: Streams, name: str, length_L: Tensor, n_strings: int, steps: range) -> Tensor:
    """(L, S, B, N) bool, fair bits, for N the longest of the lanes' lengths; false behind a lane's own.

    Args:
        streams: Of the L trainings.
        name: Of the stream.
        length_L: int64, the strings' length in each lane.
        n_strings: B, in each step.
        steps: S of them.
    """
    n_bits = int(length_L.max())
    is_inside = torch.arange(n_bits, device=length_L.device) < length_L.view(-1, 1, 1, 1)
    return streams.bits(name, n_strings, n_bits, steps) & is_inside
