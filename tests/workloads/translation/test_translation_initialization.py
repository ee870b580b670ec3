"""The starting parameters of translators: Xavier's law, or a Gaussian if `init_sigma` is given. Axes: L lane."""

import math

import torch

from attnsweep.workloads.engine.initialization import draw_parameters
from tests.workloads.translation.small_translation import WORKLOAD, lanes, small


def test_xavier_is_uniform_within_its_bound_and_gaussian_where_asked() -> None:
    parameters = small(d_model=32, d_ffn=64), small(d_model=32, d_ffn=64, init_sigma=0.3), small(d_model=32, d_ffn=64)
    some = lanes(*parameters)
    module = WORKLOAD.build(parameters[0])
    found = WORKLOAD.initial(module, some)
    gaussian = draw_parameters(module, torch.full((3,), 0.3, dtype=torch.float64), some.streams)
    for name, built in module.named_parameters():
        value = found[name]
        assert value.dtype == built.dtype
        if built.dim() == 1:
            assert torch.equal(value, built.expand(3, -1)), name
            continue
        bound = math.sqrt(6 / sum(built.shape))
        assert torch.equal(value[1], gaussian[name][1]), name
        xavier = value[[0, 2]]
        assert 0.98 * bound < xavier.abs().max() <= bound, name
        # The variance of the law is 2 / (rows + columns).
        assert abs(xavier.var() * sum(built.shape) / 2 - 1) < 0.1, name
        assert not torch.equal(value[0], value[2]), name


def test_it_is_the_law_of_torch() -> None:
    built = WORKLOAD.build(small(d_model=32)).translator.source_embedding_VD
    theirs = torch.nn.init.xavier_uniform_(torch.empty(built.shape))
    found = WORKLOAD.initial(WORKLOAD.build(small(d_model=32)), lanes(small(d_model=32)))
    ours = found["translator.source_embedding_VD"]
    bound = math.sqrt(6 / sum(built.shape))
    assert max(theirs.abs().max(), ours.abs().max()) <= bound
    assert min(theirs.abs().max(), ours.abs().max()) > 0.98 * bound


def test_a_training_starts_alike_in_any_pack() -> None:
    module = WORKLOAD.build(small())
    whole = WORKLOAD.initial(module, lanes(small(init_sigma=0.1), small(), small(init_sigma=0.2)))
    alone = WORKLOAD.initial(module, lanes(small(), seed=1))
    last = WORKLOAD.initial(module, lanes(small(init_sigma=0.2), seed=2))
    for name, value in whole.items():
        assert torch.equal(value[1], alone[name][0]), name
        assert torch.equal(value[2], last[name][0]), name
