"""A probe computes nothing twice: neither the answers on its own batch nor what the optimizer has already computed."""

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.category_pairs.full_model import FullModel
from attnsweep.workloads.engine import probing
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.probing import probe_steps_of
from attnsweep.workloads.engine.schedule import probe_steps, tail_start
from attnsweep.workloads.gpt.workload import GPTWorkload
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults
from tests.workloads.engine.test_checkpoint import _assert_same_end, _case, _ended, _undisturbed

CALLS: Counter[str] = Counter()
FIXED_SAMPLE: dict[str, Value] = {
    "variant": "solution_3",
    "expectation": "fixed_sample",
    "n_positions": 6,
    "batch_size": 20,
}


class CountingModel(FullModel):
    """Counts the passes forward."""

    def predict(self, text_BM: Tensor) -> Tensor:
        CALLS["predict"] += 1
        return super().predict(text_BM)


class CountingPairs(CategoryPairs):
    def build(self, parameters: Any) -> nn.Module:
        return CountingModel(parameters)


def _trained(workload: Workload[Any], **values: Value) -> Pack[Any]:
    pack = Pack(workload, [Training(defaults(workload, **values), seed) for seed in range(3)])
    pack._objective.is_one_by_one(pack._store.batch_at(0))  # looks at the loss twice: for this, and for dropout
    CALLS.clear()
    pack.train_to_end()
    return pack


def test_a_probe_takes_one_pass_and_the_gradient_of_lbfgs() -> None:
    settings = FIXED_SAMPLE | {"optimizer": "lbfgs", "learning_rate": 1.0, "n_steps": 5, "init_sigma": 0.3}
    pack = _trained(CountingPairs(), **settings)
    n_probes = len(pack.result().evidence.steps)
    assert CALLS["predict"] == pack._objective.n_evaluations + n_probes


@pytest.mark.sample("pairs, lbfgs-1", "pairs, adam-1000")
@pytest.mark.slow
@pytest.mark.parametrize("slice_evaluations", [1, 1_000])
@pytest.mark.parametrize(
    "name", ["pairs, sgd", "pairs, adam", "pairs, adamw", "pairs, lbfgs", "pairs, sampled", "strings, adam"]
)
def test_a_training_looked_at_at_every_step_ends_as_one_that_is_not(name: str, slice_evaluations: int) -> None:
    undisturbed, n_evaluations = _undisturbed(name)
    workload, trainings = _case(name)
    shared = trainings[0].parameters
    pack = Pack(workload, trainings, extra_probe_steps=range(shared.n_steps + 1))
    n_slices = 0
    while not pack.advance(slice_evaluations):
        n_slices += 1
    assert n_slices == (n_evaluations if slice_evaluations == 1 else 0)
    dense, own_steps = pack.result(), probe_steps_of(workload, shared)
    assert dense.evidence.steps.tolist() == list(range(shared.n_steps + 1))
    assert all(np.isin(dense.last_probe, own_steps))
    _assert_same_end(pack, undisturbed, own_steps)


@given(st.integers(1, 10**6))
def test_every_octave_is_looked_at(n_steps: int) -> None:
    steps = probe_steps(n_steps)
    assert steps[0] == 0
    assert steps[-1] == n_steps
    assert tail_start(n_steps) in steps
    assert list(steps) == sorted(set(steps))
    assert all(later <= max(earlier + 1, 1.25 * earlier) for earlier, later in pairwise(steps))
    assert len(steps) <= 4 * n_steps.bit_length() + 3


WIDE: dict[str, Value] = {"n_steps": 1000, "d_model": 32, "batch_size": 64, "eval_batch_size": 512}


def test_default_probes_take_a_tenth_of_the_work_whatever_the_speed_and_the_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workload = GPTWorkload()
    steps = probe_steps_of(workload, defaults(workload, **WIDE))
    step, probe = probing._COUNTED["gpt", GPTWorkload, defaults(workload, **WIDE).static_key()]
    assert 3 < len(steps) < len(probe_steps(1000))
    assert len(steps) * probe <= 0.1 * 1000 * step
    monkeypatch.setattr(probing, "_COUNTED", {})
    torch.manual_seed(5)
    assert probe_steps_of(workload, defaults(workload, **WIDE, learning_rate=0.5, init_sigma=1.0)) == steps
    # Fewer held-out data allow more probes; those of small trainings cost nothing to speak of.
    assert len(probe_steps_of(workload, defaults(workload, **WIDE | {"eval_batch_size": 128}))) > len(steps)
    assert probe_steps_of(workload, defaults(workload, **WIDE | {"n_steps": 10, "eval_batch_size": 16})) == probe_steps(
        10
    )
    few = probe_steps_of(workload, defaults(workload, **WIDE | {"n_steps": 100, "eval_batch_size": 4000}))
    assert 6 <= len(few) <= 8
    assert probe_steps_of(workload, defaults(workload, **WIDE, probe_every=1)) == tuple(range(1001))


PRUNED = [1, 4, 5]
AT = 19
"""A probe of trainings of 40 steps."""


def _case_of_40(name: str) -> tuple[Workload[Any], list[Training[Any]]]:
    workload, trainings = _case(name)
    values = {"n_steps": 40, "stop_when_solved": True}
    shorter = [type(each.parameters).resolve(each.parameters.values() | values) for each in trainings]
    return workload, [Training(each, seed) for seed, each in enumerate(shorter)]


def _at_probe(pack: Pack[Any], step: int) -> Pack[Any]:
    while pack.step < step:
        pack.advance(1_000, 1)
    assert pack.step == step
    return pack


@pytest.mark.parametrize("name", ["pairs, sgd", pytest.param("pairs, lbfgs", marks=pytest.mark.slow)])
def test_pruned_trainings_end_at_the_probe_and_the_others_as_if_alone(name: str) -> None:
    workload, trainings = _case_of_40(name)
    pack, undisturbed = _at_probe(Pack(workload, trainings), AT), _ended(Pack(workload, trainings)).result()
    was_running = set(pack.running)
    pack.prune(PRUNED)
    assert set(pack.running) == was_running - set(PRUNED)
    result = _ended(pack).result()
    others = [lane for lane in range(8) if lane not in PRUNED]
    assert result.pruned_step.tolist() == [AT if lane in PRUNED else -1 for lane in range(8)]
    assert (result.n_steps[PRUNED] <= AT).all()
    assert AT in result.n_steps[PRUNED].tolist()
    assert (result.n_steps[others] == undisturbed.n_steps[others]).all()
    beyond = result.evidence.steps > AT
    for metric, table in result.evidence.metrics.items():
        assert np.isnan(table[PRUNED][:, beyond]).all()
        np.testing.assert_array_equal(table[others], undisturbed.evidence.metrics[metric][others])
