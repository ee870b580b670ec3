"""CPU time of a training's step: attnsweep against the layers that HFTA fuses by hand, and a loop of plain PyTorch.

    pip install git+https://github.com/UofT-EcoSystem/hfta
    python benchmarks/vs_hfta.py [--rounds 3] [--sizes 16 64] [--out benchmarks/vs_hfta.json]

HFTA (Wang et al. 2021, MLSys) has a fused form of each layer and optimizer: the user builds the model of B trainings
from them. Here: LayerNorm and two linear layers with tanh between, a teacher of one linear layer, mean squared error,
Adam, batches of 64, float32. All sides draw their batches inside the step. One thread, in turns, in CPU seconds.
"""

import sys
from typing import Any

import torch
from harness import main, step_seconds
from torch import Tensor, nn

import attnsweep as at
from attnsweep.workloads.engine.compiling.programs import Programs
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack

try:
    from hfta.ops import get_hfta_op_for
    from hfta.optim import get_hfta_optim_for
except ImportError:
    sys.exit("vs_hfta: got no hfta, expected it beside attnsweep; fix: pip install from its repository")

_INPUTS, _HIDDEN, _BATCH, _LEARNING_RATE = 16, 64, 64, 1e-3


def model() -> nn.Module:
    """The network of one training."""
    return nn.Sequential(nn.LayerNorm(_INPUTS), nn.Linear(_INPUTS, _HIDDEN), nn.Tanh(), nn.Linear(_HIDDEN, 1))


def data(draw: at.Draw) -> tuple[Tensor, Tensor]:
    """A batch, and its teacher's answers."""
    x = draw.normal(_BATCH, _INPUTS)
    return x, x @ draw.fixed.normal(_INPUTS, 1)


STUDENT = at.problem("student", model=model, data=data, loss="mse", solved=0.01, defaults={"optimizer": "adam"})


def measure(*, rounds: int = 3, sizes: tuple[int, ...] = (16, 64)) -> dict[str, Any]:
    """Measures all sides at each number of trainings."""
    torch.set_num_threads(1)
    return {"rows": [_row(size, rounds) for size in sizes]}


def _row(size: int, rounds: int) -> dict[str, Any]:
    """Microseconds of CPU for a step of one training, of each side."""
    parameters = STUDENT.parameters.resolve({"n_steps": 10**6, "learning_rate": _LEARNING_RATE})
    trainings = [Training(parameters, seed) for seed in range(size)]
    sides = {
        "hfta": _fused(size),
        "one at a time": _alone(size),
        "attnsweep, blocks": Pack(STUDENT(), trainings, programs=Programs()).advance,
        "attnsweep, vmapped": Pack(STUDENT(), trainings).advance,
    }
    seconds = step_seconds(sides, rounds)
    return {"trainings": size, "microseconds": {side: round(1e6 * each / size, 1) for side, each in seconds.items()}}


def _fused(size: int) -> Any:
    linear, norm = (get_hfta_op_for(kind, B=size) for kind in (nn.Linear, nn.LayerNorm))
    network = nn.Sequential(norm(_INPUTS), linear(_INPUTS, _HIDDEN), nn.Tanh(), linear(_HIDDEN, 1))
    adam = get_hfta_optim_for(torch.optim.Adam, B=size)(network.parameters(), lr=[_LEARNING_RATE] * size)
    return _advance(network, adam, torch.randn(size, _INPUTS, 1), (size, _BATCH, _INPUTS))


def _alone(size: int) -> Any:
    """A loop over trainings, each with plain PyTorch."""
    parts = []
    for _ in range(size):
        network = model()
        adam = torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE)
        parts.append(_advance(network, adam, torch.randn(_INPUTS, 1), (_BATCH, _INPUTS)))

    def advance(n: int) -> None:
        for each in parts:
            each(n)

    return advance


def _advance(network: nn.Module, adam: Any, teacher: Tensor, shape: tuple[int, ...]) -> Any:
    def advance(n: int) -> None:
        for _ in range(n):
            x = torch.randn(shape)
            # The sum over trainings of each one's mean, so that gradients do not depend on their number.
            loss = (network(x) - x @ teacher).square().mean(dim=(-2, -1)).sum()
            adam.zero_grad()
            loss.backward()
            adam.step()

    return advance


if __name__ == "__main__":
    main(measure)
