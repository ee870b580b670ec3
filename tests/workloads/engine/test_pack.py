"""Packs: ended lanes leave, non-finite lanes freeze, and no result depends on the other lanes."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Lanes, Training
from attnsweep.workloads.engine.layout import Layout
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.result import PackResult, Record
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults
from tests.refusals import refused

WORKLOAD = CategoryPairs()


def _train(*trainings: Training, slice_steps: int = 10_000) -> PackResult:  # type: ignore[type-arg]
    return Pack(WORKLOAD, trainings).train_to_end(slice_steps)


def _training(seed: int, **values: float | int | str | bool | None) -> Training:  # type: ignore[type-arg]
    return Training(defaults(WORKLOAD, **({"n_steps": 400} | values)), seed)


def test_the_first_metric_so_far_is_the_workloads_own_at_each_trainings_last_probe() -> None:
    record, lanes = Record([0, 1], {}, [None] * 3), np.arange(3)
    assert record.metric() is None
    for probe, accuracy in ((0, [0.0, 0.5, np.nan]), (1, [1.0, 0.75, np.nan])):
        record.add_metrics(probe, lanes, {"loss": np.ones(3), "eval_loss": np.ones(3), "accuracy": np.array(accuracy)})
    record.last_probe[:2] = 1, 0
    assert record.metric() == ("accuracy", 0.75)


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


@pytest.mark.sample("solution_3-float64", "combined-float32")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "dtype"),
    [
        ("solution_1", "float32"),
        ("solution_2", "float32"),
        ("solution_3", "float64"),
        pytest.param("combined", "float32", marks=pytest.mark.scale),
        ("combined", "float64"),
    ],
)
def test_matrix_products_do_not_round_by_the_pack(variant: str, dtype: str) -> None:
    """Sizes at which the kernels for one product, and for one sum, differ from those for many."""
    shapes: dict[str, Value] = {
        "variant": variant,
        "expectation": "fixed_sample",
        "n_positions": 20,
        "batch_size": 256,
        "dtype": dtype,
    }
    trainings = [
        _training(seed, **shapes, optimizer="lbfgs", learning_rate=1.0, n_steps=4, init_sigma=None) for seed in range(5)
    ]
    whole = _train(*trainings).evidence.metrics
    for size in (1, 2):
        for metric, table in _train(*trainings[:size]).evidence.metrics.items():
            np.testing.assert_array_equal(whole[metric][:size], table, err_msg=f"{metric}, pack of {size}")


@pytest.mark.scale
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_matrix_products_do_not_round_by_the_place_in_the_pack(dtype: str) -> None:
    """Sizes at which lanes have odd memory alignments, on which MKL's rounding depends by default."""
    shapes: dict[str, Value] = {
        "variant": "combined",
        "expectation": "fixed_sample",
        "n_categories": 3,
        "n_positions": 4,
        "init_sigma": None,
    }
    trainings = [
        _training(seed, **shapes, dtype=dtype, batch_size=32, optimizer="lbfgs", learning_rate=1.0, n_steps=15)
        for seed in range(8)
    ]
    whole = _train(*trainings).evidence.metrics
    for places in ([3], [0, 5], [7, 2, 1]):
        for metric, table in _train(*(trainings[place] for place in places)).evidence.metrics.items():
            np.testing.assert_array_equal(whole[metric][places], table, err_msg=f"{metric}, trainings {places}")


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


def test_a_bound_on_what_is_not_measured_is_refused_at_the_first_probe() -> None:
    pack = Pack(CategoryPairs(), [_training(0, stop_when="accuracy >= 1")])
    with refused("stop_when", SpecError):
        pack.advance(1)


@pytest.mark.scale
@pytest.mark.slow
def test_a_lane_pays_for_the_steps_it_took() -> None:
    result = _train(_training(0, n_steps=2000, learning_rate=0.03), _training(1, n_steps=2000, learning_rate=1e-4))
    assert 0 < result.train_seconds[0] < result.train_seconds[1]


def test_an_initialization_must_cover_all_parameters() -> None:
    class Forgetful(CategoryPairs):
        def initial(self, module, lanes):  # type: ignore[no-untyped-def]
            state = super().initial(module, lanes)
            del state["q_MK"]
            return state

    with pytest.raises(TypeError, match=r"category_pairs.initial: got no values of \['q_MK'\]"):
        Pack(Forgetful(), [_training(0)])


class Hooked(CategoryPairs):
    """A workload that draws three steps at once, is probed every fifth step, and records its calls."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def batches(self, lanes, steps):  # type: ignore[no-untyped-def]
        self.asked.append(steps[0])
        return [self.batch(lanes, step) for step in steps[:3]]

    def probe_steps(self, parameters):  # type: ignore[no-untyped-def]
        return tuple(range(0, parameters.n_steps + 1, 5))


def test_a_workload_may_draw_steps_in_blocks_and_say_when_it_is_looked_at() -> None:
    trainings = [
        _training(seed, n_steps=10, variant="categories_only", expectation="sampled", stop_when_solved=False)
        for seed in range(2)
    ]
    hooked = Hooked()
    pack = Pack(hooked, trainings)
    pack.train_to_end(4)
    found, plain = pack.result().evidence, _train(*trainings).evidence
    assert hooked.asked == [0, 3, 6, 9]
    assert found.steps.tolist() == [0, 5, 10]
    shared = np.isin(plain.steps, found.steps)
    assert plain.steps[shared].tolist() == [0, 5, 10]
    for metric in ("loss", "eval_loss"):
        np.testing.assert_array_equal(found.metrics[metric], plain.metrics[metric][:, shared])


def test_some_lanes_are_as_if_there_were_no_others() -> None:
    trainings = [Training(defaults(CategoryPairs(), init_sigma=0.1 * (seed + 1)), seed) for seed in range(5)]
    lanes, device = Lanes(trainings, torch.device("cpu")), torch.device("cpu")
    lanes.tensor("init_sigma")
    some, alone = lanes.select(torch.tensor([3, 1, 1])), Lanes([trainings[each] for each in (3, 1, 1)], device)
    assert some.trainings == alone.trainings
    for name in ("init_sigma", "learning_rate"):
        assert torch.equal(some.tensor(name), alone.tensor(name))
    assert torch.equal(some.streams.uniform("x", (4,)), alone.streams.uniform("x", (4,)))
    assert torch.equal(lanes.streams.seeds, torch.arange(5))


PROGRAM = """
import resource
import torch
from attnsweep.workloads.engine.process import training_settings

def page_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

with training_settings():
    print(min(page_faults() for _ in range(8)))
"""


@pytest.mark.scale
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_tensors_reuse_the_memory_of_those_before() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    pages_of_a_tensor = 4 * 2**24 // 4096
    assert int(done.stdout) < pages_of_a_tensor


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


def test_gradients_flow_to_the_row_and_not_between_parameters() -> None:
    layout = Layout(PARAMETERS)
    rows = layout.rows(PARAMETERS).requires_grad_()
    views = layout.views(rows)
    (gradient,) = torch.autograd.grad((3.0 * views["vector"]).sum() + views["scalar"].sum(), rows)
    found = layout.views(gradient)
    assert (found["vector"] == 3.0).all()
    assert (found["scalar"] == 1.0).all()
    assert gradient.sum() == 3.0 * 34 + 2


def test_steps_between_probes_are_told() -> None:
    pack = Pack(WORKLOAD, [_training(0, n_steps=5000, stop_when_solved=False)])
    pack.advance(3990)
    assert pack.step < pack.reached == 3990
