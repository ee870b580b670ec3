"""What a module draws when it is built follows from the training's parameters and seed; null leaves it as it is."""

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnsweep.workloads.attention.layers import Embedding, Linear
from attnsweep.workloads.engine.construction import check_trainable, starting_state
from attnsweep.workloads.engine.contract import Lanes
from attnsweep.workloads.engine.initialization import draw_parameters
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.plain import check_as_plain
from attnsweep.workloads.engine.streams import Streams, generator_seed
from attnsweep.workloads.errors import SpecError
from tests.workloads.engine.any_module import AnyModule, AnyParameters, lanes_of

TOKENS = torch.arange(5)


def _numbers(*shape: int) -> Tensor:
    return torch.linspace(-1, 1, 60, dtype=torch.float64)[: int(np.prod(shape))].view(shape)


class TinyGPT(nn.Module):
    """With GPT-2's initialization, and the embedding tied to the head."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(5, 4), nn.Embedding(5, 4)
        self.block = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.token.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self) -> Tensor:
        x = self.token(TOKENS) + self.position.weight
        answer: Tensor = self.head(self.block(x[None]))
        return answer


class OneOfNumPy(nn.Module):
    """Draws from the generators of NumPy and Python."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.from_numpy(np.random.normal(size=(3, 2))))
        self.bias = nn.Parameter(torch.tensor([random.random(), random.random()]))

    def forward(self) -> Tensor:
        return self.weight + self.bias


Case = tuple[Callable[[AnyParameters], nn.Module], Callable[[nn.Module], Tensor]]
STOCK: dict[str, Case] = {
    "Linear": (lambda _: nn.Linear(4, 3), lambda module: module(_numbers(2, 4))),
    "LayerNorm": (lambda _: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), lambda module: module(_numbers(2, 4))),
    "MultiheadAttention": (
        lambda _: nn.MultiheadAttention(4, 2, batch_first=True),
        lambda module: module(*[_numbers(2, 5, 4)] * 3)[0],
    ),
    "weight_norm": (
        lambda _: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)),
        lambda module: module(_numbers(2, 4)),
    ),
    "tiny GPT": (lambda _: TinyGPT(), lambda module: module()),
    "NumPy": (lambda _: OneOfNumPy(), lambda module: module()),
}
stock = pytest.mark.parametrize("case", STOCK.values(), ids=STOCK)
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")
"""PyTorch's fused attention is computed lane by lane."""


def _losses(workload: AnyModule, lanes: Lanes[AnyParameters]) -> Tensor:
    pack = Pack(workload, lanes.trainings)
    pack.train_to_end()
    return torch.from_numpy(pack.result().evidence.metrics["eval_loss"])


@stock
def test_a_training_is_a_function_of_its_parameters_and_seed(case: Case) -> None:
    workload, settings = AnyModule(*case), [AnyParameters(init_sigma=sigma, n_steps=3) for sigma in (None, 0.1, None)]
    together = _losses(workload, lanes_of(*settings))
    torch.rand(7), np.random.rand(7), random.random()
    assert torch.equal(together, _losses(workload, lanes_of(*settings)))
    alone = torch.cat([_losses(workload, lanes_of(each, first_seed=seed)) for seed, each in enumerate(settings)])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=0.0)
    weights, buffers, _ = starting_state(workload, lanes_of(*settings))
    for seed, each in enumerate(settings):
        its_weights, its_buffers, _ = starting_state(workload, lanes_of(each, first_seed=seed))
        its = its_weights | its_buffers
        assert all(torch.equal(value[0], (weights | buffers)[name][seed]) for name, value in its.items())


@stock
def test_null_is_the_modules_own_initialization_under_the_trainings_generator(case: Case) -> None:
    parameters, _, _ = starting_state(AnyModule(*case), lanes_of(*[AnyParameters(init_sigma=None)] * 2))
    for seed in range(2):
        drawn = generator_seed(seed, "build")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(drawn)
            np.random.seed(drawn % 2**32)
            random.seed(drawn)
            module = case[0](AnyParameters())
        own = dict(module.named_parameters())
        assert parameters.keys() == own.keys()
        for name, value in own.items():
            assert torch.equal(parameters[name][seed], value.double())
    assert any(not torch.equal(*values) for values in parameters.values())


GENERATOR = torch.Generator().manual_seed(0)
OF_NUMPY = np.random.default_rng(0)


def _with_bias(draw: Callable[[], Tensor]) -> nn.Module:
    module = nn.Linear(3, 3)
    module.bias = nn.Parameter(draw())
    return module


def _with_rate() -> nn.Module:
    module = nn.Linear(3, 3)
    module.rate = float(OF_NUMPY.normal())  # type: ignore[assignment]
    return module


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: _with_bias(lambda: torch.rand(3, generator=GENERATOR)), "bias"),
        (lambda: _with_bias(lambda: torch.from_numpy(OF_NUMPY.normal(size=3))), "bias"),
        (lambda: _with_bias(lambda: torch.from_numpy(np.random.default_rng().normal(size=3))), "bias"),
        (_with_rate, "rate"),
    ],
)
def test_a_generator_that_cannot_be_seeded_is_refused_by_name(build: Callable[[], nn.Module], name: str) -> None:
    message = f"{name} of the module: got 'another value when the module of the same training is"
    with pytest.raises(SpecError, match=message):
        starting_state(AnyModule(lambda _: build()), lanes_of(AnyParameters()))


def test_a_tied_weight_is_drawn_once_and_stays_tied() -> None:
    workload, lanes = (
        AnyModule(lambda _: TinyGPT()),
        lanes_of(AnyParameters(init_sigma=0.1, n_steps=3, learning_rate=1.0)),
    )
    initial = workload.initial(TinyGPT(), lanes)
    assert "token.weight" in initial
    assert "head.weight" not in initial
    pack = Pack(workload, lanes.trainings)
    pack.advance(100)
    _, state = pack.final_state(np.array([0]))
    module = TinyGPT().double()
    module.load_state_dict({name: value[0] for name, value in state.items()}, strict=False)
    assert module.head.weight is module.token.weight
    loss = workload.loss(module, {}).item()
    assert loss == pytest.approx(pack.result().evidence.metrics["eval_loss"][0, -1], rel=1e-9)


X = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4)


def _with(**tensors: Tensor) -> nn.Module:
    module = nn.Linear(4, 4)
    for name, value in tensors.items():
        if isinstance(value, nn.Parameter):
            module.register_parameter(name, value)
        else:
            module.register_buffer(name, value)
    return module


class OptimizedModule(nn.Module):
    """Named as what torch.compile returns."""


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no module": (lambda: None, "model: got None, expected a function `model` that returns an nn.Module"),
    "compiled": (lambda: nn.Sequential(nn.Linear(4, 4), OptimizedModule()), "1: got 'a module of torch.compile or"),
    "lazy": (lambda: nn.LazyLinear(4), "weight of the module: got 'a tensor without a shape, as in nn.LazyLinear'"),
    "complex buffer": (lambda: _with(turn=torch.ones(2, dtype=torch.complex64)), "turn of the module: got 'complex"),
    "nothing to train": (nn.ReLU, "model: got 'a module without a parameter that requires gradients'"),
    "parameters in one memory": (
        lambda: _with(first=nn.Parameter(X), second=nn.Parameter(X)),
        "first and second of the module: got 'two tensors in the same memory'",
    ),
}


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize(("build", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_trained_is_refused(build: Callable[[], object], sentence: str) -> None:
    with pytest.raises(SpecError, match=f"^(the parameter or buffer )?{sentence}") as caught:
        check_trainable(build())
    assert "\n" not in str(caught.value)


class Frozen(nn.Module):
    """A layer between frozen numbers, some of which are whole, and beside a parameter without any."""

    def __init__(self) -> None:
        super().__init__()
        self.fixed, self.line = nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 4)
        self.signs = nn.Parameter(torch.tensor([[1, -1, 1, -1]]), requires_grad=False)
        self.empty = nn.Parameter(torch.zeros(0, 4))

    def forward(self) -> Tensor:
        answer: Tensor = self.line(self.fixed(X)) * self.signs + self.empty.sum()
        return answer


@pytest.mark.parametrize("init_sigma", [None, 0.5])
def test_a_frozen_parameter_stays_where_its_training_starts(init_sigma: float | None) -> None:
    parameters = [AnyParameters(n_steps=3, init_sigma=init_sigma, stop_when_solved=False)] * 2
    pack = Pack(AnyModule(lambda _: Frozen()), lanes_of(*parameters).trainings)
    _, start = pack.final_state(np.arange(2))
    pack.advance(3)
    _, end = pack.final_state(np.arange(2))
    stays = {name for name, value in end.items() if torch.equal(value, start[name])}
    assert stays == {"fixed.weight", "fixed.bias", "signs", "empty"}
    assert not torch.equal(end["fixed.weight"][0], end["fixed.weight"][1])
    assert end["signs"].tolist() == [[[1, -1, 1, -1]]] * 2
    check_as_plain(AnyModule(lambda _: Frozen()), lanes_of(*parameters).trainings)


def _drawn(module: nn.Module, *init_sigma: float) -> dict[str, Tensor]:
    return draw_parameters(module, torch.tensor(init_sigma).double(), Streams(torch.arange(len(init_sigma))))


def test_a_module_without_an_initialization_starts_as_pytorchs_layers_do() -> None:
    linear, embedding = Linear(64, 200), Embedding(200, 64)
    weight, bias = _drawn(linear, math.nan)["weight"], _drawn(linear, math.nan)["bias"]
    bound = 1 / math.sqrt(64)
    for drawn in (weight, bias):
        assert drawn.abs().max() <= bound
        torch.testing.assert_close(drawn.std().item(), bound / math.sqrt(3), rtol=0.15, atol=0.0)
    torch.testing.assert_close(_drawn(embedding, math.nan)["weight"].std().item(), 1.0, rtol=0.03, atol=0.0)
