"""A pack of small transformers is faster than a plain loop of PyTorch, by a ratio that holds on a busy machine."""

import statistics
import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.pack import Pack
from tests.workloads.engine.any_module import AnyModule, AnyParameters, lanes_of

B, T, D, V = 4, 8, 16, 8
N_LANES, N_TURNS, PLAIN_STEPS, PACK_STEPS = 64, 7, 20, 4
AT_LEAST = 6.0  # 11 to 14 on a machine with three programs a core
PARAMETERS = AnyParameters(n_steps=10**6, optimizer="adam", dtype="float32", init_sigma=None, stop_when_solved=False)


class Layer(nn.Module):
    """x + W softmax(q k' / sqrt(D)) v, causal."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inputs, self.output = nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.register_buffer("mask", torch.full((T, T), -1e9).triu(1))

    def forward(self, x_BTD: Tensor) -> Tensor:
        q, k, v = self.inputs(self.norm(x_BTD)).chunk(3, dim=-1)
        weights_BTT = torch.softmax(q @ k.mT / D**0.5 + self.mask, dim=-1)
        out: Tensor = x_BTD + self.output(weights_BTT @ v)
        return out


class Transformer(nn.Module):
    """The logits (B, T, V) of fixed texts."""

    words_BTV: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layers = nn.Linear(V, D), nn.Sequential(Layer(), Layer())
        self.head = nn.Linear(D, V)
        self.register_buffer("words_BTV", torch.eye(V)[torch.arange(B * T).view(B, T) % V])

    def forward(self) -> Tensor:
        logits: Tensor = self.head(self.layers(self.embedding(self.words_BTV)))
        return logits


class Unprobed(AnyModule):
    def probe_steps(self, parameters: AnyParameters) -> tuple[int, ...]:
        return 0, parameters.n_steps


WORKLOAD = Unprobed(lambda _: Transformer())


def _plain() -> Callable[[int], object]:
    module = Transformer()
    optimizer = torch.optim.Adam(module.parameters(), lr=PARAMETERS.learning_rate)

    def advance(n_steps: int) -> None:
        for _ in range(n_steps):
            optimizer.zero_grad()
            WORKLOAD.loss(module, {}).backward()
            optimizer.step()

    return advance


def _cpu_seconds(advance: Callable[[int], object], n_steps: int) -> float:
    started = time.process_time()
    advance(n_steps)
    return (time.process_time() - started) / n_steps


@pytest.mark.slow
def test_a_pack_of_64_transformers_outruns_the_plain_loop() -> None:
    pack = Pack(WORKLOAD, lanes_of(*[PARAMETERS] * N_LANES).trainings)
    plain = _plain()
    for advance in (pack.advance, plain):
        advance(PACK_STEPS)
    ratios = [
        N_LANES * _cpu_seconds(plain, PLAIN_STEPS) / _cpu_seconds(pack.advance, PACK_STEPS) for _ in range(N_TURNS)
    ]
    assert statistics.median(ratios) > AT_LEAST
