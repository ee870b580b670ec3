"""The starting parameters of encoders: PyTorch's own distributions, or a Gaussian."""

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Lanes, Training
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.testing import defaults
from tests.workloads.formal_languages.torch_encoder import parameters_of

WORKLOAD = FormalLanguages()


def _initial(*sigmas: float | None, n_seeds: int = 1) -> dict[str, Tensor]:
    settings = [defaults(WORKLOAD, init_sigma=sigma, dtype="float64") for sigma in sigmas]
    trainings = [Training(each, seed) for seed in range(n_seeds) for each in settings]
    return WORKLOAD.initial(WORKLOAD.build(settings[0]).double(), Lanes(trainings, torch.device("cpu")))


@pytest.fixture(scope="module")
def torchs() -> dict[str, Tensor]:
    """The parameters of forty PyTorch layers, by our names."""
    found: dict[str, list[Tensor]] = {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for _ in range(40):
            layer = nn.TransformerEncoderLayer(16, 1, 64)
            for name, value in {
                **{f"layers.0.{name}": value for name, value in parameters_of(layer).items()},
                "symbol_SD": nn.Embedding(3, 16).weight,
                "answer_weight_D1": nn.Linear(16, 1).weight,
                "answer_bias_1": nn.Linear(16, 1).bias,
            }.items():
                found.setdefault(name, []).append(value.detach().flatten())
    return {name: torch.cat(values) for name, values in found.items()}


def test_the_default_is_distributed_as_torchs(torchs: dict[str, Tensor]) -> None:
    ours = _initial(None, n_seeds=40)
    assert ours.keys() >= torchs.keys()
    for name, theirs in torchs.items():
        found = ours[name].flatten()
        if theirs.unique().numel() <= 2:
            assert torch.equal(found.unique(), theirs.double().unique()), name
        else:
            assert stats.ks_2samp(found.numpy(), theirs.numpy()).pvalue > 1e-3, name
