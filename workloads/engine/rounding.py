"""Measures how much the weights of a training depend on its place in a pack.

PyTorch's elementwise kernels compute full vectors in one way and the remainder in another, so that some functions, such
as GELU, sigmoid and pow, differ in the last digits depending on an entry's place in memory.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.engine.contract import P, Training, Workload
from attnsweep.workloads.engine.pack import Pack

_STEPS = 3


def deviation_by_place(workload: Workload[P], trainings: Sequence[Training[P]], device: str = "cpu") -> float:
    """Trains a few steps in a pack and alone, and returns the largest relative difference of a tensor.

    The difference is relative to the tensor's largest number, and 0 if the bits of a training do not depend on its
    place.
    """
    together = _tensors(workload, trainings, device)
    alone = [_tensors(workload, [training], device) for training in trainings]
    deviations = (
        _relative(values[lane], tensors[name][0])
        for lane, tensors in enumerate(alone)
        for name, values in together.items()
    )
    return max(deviations, default=0.0)


def said_of_places(workload: Workload[P], trainings: Sequence[Training[P]], device: str = "cpu") -> str:
    """Describes in a sentence how much a training's bits depend on its place in the pack (`deviation_by_place`)."""
    deviation = deviation_by_place(workload, trainings, device)
    if deviation == 0.0:
        return f"bits: after {_STEPS} steps no bit of a training depends on its place in its pack"
    return (
        f"bits: after {_STEPS} steps a training alone differs from itself in a pack by up to {deviation:.1e} of a "
        "tensor's size, because an operation rounds by the place in memory: see docs/trust.md"
    )


def _tensors(workload: Workload[P], trainings: Sequence[Training[P]], device: str) -> dict[str, NDArray[np.float64]]:
    pack = Pack(workload, trainings, device)
    pack.advance(_STEPS)
    _, state = pack.final_state(np.arange(len(trainings)))
    return {name: value.double().numpy(force=True) for name, value in state.items() if value.is_floating_point()}


def _relative(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    differs = (one != other) & ~(np.isnan(one) & np.isnan(other))
    if not differs.any():
        return 0.0
    return float(np.abs(one - other)[differs].max() / max(np.abs(other).max(), np.finfo(float).tiny))
