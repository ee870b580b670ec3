"""Packs: ended lanes leave, non-finite lanes freeze, and no result depends on the other lanes."""

from typing import Any

import numpy as np
import pytest
import torch

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.layout import Layout
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.result import PackResult
from attnsweep.workloads.testing import defaults

WORKLOAD = CategoryPairs()


def _train(*trainings: Training, slice_steps: int = 10_000) -> PackResult:  # type: ignore[type-arg]
    return Pack(WORKLOAD, trainings).train_to_end(slice_steps)


def _training(seed: int, **values: float | int | str | bool | None) -> Training:  # type: ignore[type-arg]
    return Training(defaults(WORKLOAD, **({"n_steps": 400} | values)), seed)


SIZES = [(size, "float64", "sgd") for size in (1, 7, 64)] + [(3, "bfloat16", rule) for rule in ("sgd", "adam")]


@pytest.mark.slow
@pytest.mark.sample("7-float64-sgd", "3-bfloat16-adam")
@pytest.mark.parametrize(("pack_size", "dtype", "optimizer"), SIZES)
def test_a_training_is_the_same_to_the_last_bit_in_any_pack(pack_size: int, dtype: str, optimizer: str) -> None:
    own = [{"init_sigma": 10.0 ** (-seed % 5), "learning_rate": 0.01 + seed / 1e4} for seed in range(64)]
    trainings = [_training(seed, **values, dtype=dtype, optimizer=optimizer) for seed, values in enumerate(own)]
    whole = _train(*trainings).evidence.metrics
    part = _train(*trainings[20 : 20 + pack_size]).evidence.metrics
    for metric, table in part.items():
        np.testing.assert_array_equal(whole[metric][20 : 20 + pack_size], table, err_msg=metric)


@pytest.mark.slow
def test_a_diverging_lane_is_frozen_with_its_step() -> None:
    result = _train(_training(0), _training(1, learning_rate=10.0, init_sigma=2.0))
    assert result.diverged_step[0] == -1
    assert 0 < result.diverged_step[1] < 100
    assert result.n_steps[1] == result.diverged_step[1]
    assert np.isfinite(result.last("eval_loss")).all()


@pytest.mark.slow
def test_a_solved_lane_stops_unless_told_to_go_on() -> None:
    stopped = _train(_training(0, n_steps=2000, learning_rate=0.03))
    whole = _train(_training(0, n_steps=2000, learning_rate=0.03, stop_when_solved=False))
    assert stopped.n_steps[0] < 2000
    assert whole.n_steps[0] == 2000
    assert stopped.last("eval_loss")[0] < stopped.evidence.levels["solved"][0]


@pytest.mark.parametrize(("sign", "share"), [("<=", 0.9), ("<", 0.9), (">=", 0.9), ("<=", 0.0)])
def test_a_lane_stops_where_a_metric_passes_its_bound(sign: str, share: float) -> None:
    values: dict[str, Any] = {"n_steps": 300, "learning_rate": 0.03, "stop_when_solved": False}
    whole = _train(*(_training(seed, **values) for seed in range(3)))
    steps, loss = whole.evidence.steps, whole.evidence.metrics["eval_loss"]
    bound = share * float(loss[0, 0])
    stopped = _train(*(_training(seed, **values, stop_when=f"eval_loss {sign} {bound!r}") for seed in range(3)))
    for lane in range(3):
        passed = np.flatnonzero({"<=": loss[lane] <= bound, "<": loss[lane] < bound, ">=": loss[lane] >= bound}[sign])
        last = passed[0] if passed.size else len(steps) - 1
        assert stopped.n_steps[lane] == steps[last]
        np.testing.assert_array_equal(stopped.evidence.metrics["eval_loss"][lane, : last + 1], loss[lane, : last + 1])


def test_an_initialization_must_cover_all_parameters() -> None:
    class Forgetful(CategoryPairs):
        def initial(self, module, lanes):  # type: ignore[no-untyped-def]
            state = super().initial(module, lanes)
            del state["q_MK"]
            return state

    with pytest.raises(TypeError, match=r"category_pairs.initial: got no values of \['q_MK'\]"):
        Pack(Forgetful(), [_training(0)])


PARAMETERS = {
    "matrix": torch.arange(2 * 3 * 5, dtype=torch.float64).view(2, 3, 5),
    "vector": torch.arange(2 * 17, dtype=torch.float64).view(2, 17),
    "scalar": torch.arange(2, dtype=torch.float64),
    "full": torch.arange(2 * 32, dtype=torch.float64).view(2, 4, 8),
}


def test_views_are_the_parameters_in_the_same_memory() -> None:
    layout = Layout(PARAMETERS)
    rows = layout.rows(PARAMETERS)
    views = layout.views(rows)
    assert list(views) == list(PARAMETERS)
    for name, value in PARAMETERS.items():
        assert torch.equal(views[name], value), name
        assert views[name].data_ptr() % 64 == rows.data_ptr() % 64
    rows += 1.0
    assert torch.equal(views["matrix"], PARAMETERS["matrix"] + 1.0)
    assert rows.stride(0) * rows.element_size() % 64 == 0


def test_steps_between_probes_are_told() -> None:
    pack = Pack(WORKLOAD, [_training(0, n_steps=5000, stop_when_solved=False)])
    pack.advance(3990)
    assert pack.step < pack.reached == 3990
