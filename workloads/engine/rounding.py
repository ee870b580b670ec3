"""How much a training's numbers depend on its place in a pack, because kernels round by the place in memory.

PyTorch's elementwise kernels compute whole vectors in one way, and the remainder in another way: some functions, such
as GELU, sigmoid and pow, then differ in the last digits.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.engine.contract import P, Training, Workload
from attnsweep.workloads.engine.pack import Pack

_STEPS = 3


def deviation_by_place(workload: Workload[P], trainings: Sequence[Training[P]], device: str = "cpu") -> float:
    """The largest deviation of a tensor, relative to its largest number, of trainings alone from the same in a pack.

    Each takes a few steps. It is 0 where a training's bits do not depend on its place.
    """
    together = _tensors(workload, trainings, device)
    alone = [_tensors(workload, [each], device) for each in trainings]
    found = (
        _relative(values[lane], own[name][0]) for lane, own in enumerate(alone) for name, values in together.items()
    )
    return max(found, default=0.0)


def said_of_places(workload: Workload[P], trainings: Sequence[Training[P]], device: str = "cpu") -> str:
    """The same for a user."""
    deviation = deviation_by_place(workload, trainings, device)
    if deviation == 0.0:
        return f"bits: after {_STEPS} steps none depends on a training's place in its pack"
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
