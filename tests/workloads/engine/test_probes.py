"""A probe computes nothing twice: neither the answers on its own batch nor what the optimizer has already computed."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.category_pairs.full_model import FullModel
from attnsweep.workloads.engine import probing
from attnsweep.workloads.engine.checkpoint import from_bytes, to_bytes
from attnsweep.workloads.engine.contract import Batch, Training, Workload
from attnsweep.workloads.engine.outcomes import Evidence
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.probing import probe_steps_of
from attnsweep.workloads.engine.schedule import probe_steps, tail_start
from attnsweep.workloads.engine.verdicts import Rule, VerdictTable
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.formal_languages.encoder import Encoder
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


class CountingLanguages(FormalLanguages):
    def build(self, parameters: Any) -> Encoder:
        encoder = super().build(parameters)
        encoder.register_forward_pre_hook(lambda *_: CALLS.update(["forward"]))
        return encoder

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        CALLS["loss"] += 1
        return super().loss(module, batch)


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


@pytest.mark.slow
def test_a_probe_takes_one_pass_of_its_own_and_one_of_the_next_step() -> None:
    pack = _trained(CountingLanguages(), language="first", n_steps=4, train_length=5, longest_test_length=5)
    n_probes = len(pack.result().evidence.steps)
    assert CALLS["loss"] == 4 + n_probes
    assert CALLS["forward"] == CALLS["loss"] + n_probes


@pytest.mark.sample("pairs, lbfgs-1", "pairs, adam-1000")
@pytest.mark.slow
@pytest.mark.parametrize("slice_evaluations", [1, 1_000])
@pytest.mark.parametrize(
    "name", ["pairs, sgd", "pairs, adam", "pairs, adamw", "pairs, lbfgs", "pairs, sampled", "strings, sgd"]
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


def _is_thirteenth(evidence: Evidence) -> NDArray[np.bool_]:
    held = np.zeros(evidence.metrics["loss"].shape, np.bool_)
    held[:, 12:] = True
    return held


def test_who_is_solved_is_judged_by_the_own_probes_alone() -> None:
    class Patient(CategoryPairs):
        """A workload that labels a training as solved at its thirteenth probe."""

        verdicts = VerdictTable((Rule(outcome="solved", when=lambda _, evidence: _is_thirteenth(evidence)),))

    workload, (_, trainings) = Patient(), _case("pairs, adam")
    undisturbed = _ended(Pack(workload, trainings))
    dense = _ended(Pack(workload, trainings, extra_probe_steps=range(121)))
    own_steps = probe_steps_of(workload, trainings[0].parameters)
    assert undisturbed.result().n_steps.max() == own_steps[12]
    _assert_same_end(dense, undisturbed, own_steps)


@pytest.mark.slow
def test_what_is_seen_between_is_what_a_shorter_training_ends_with() -> None:
    workload, trainings = _case("pairs, adam")
    dense = _ended(Pack(workload, trainings, extra_probe_steps=[37])).result()
    values = trainings[0].parameters.values() | {"n_steps": 37}
    shorter = _ended(Pack(workload, [Training(type(trainings[0].parameters).resolve(values), 0)])).result()
    assert 37 not in probe_steps_of(workload, trainings[0].parameters)
    place = dense.evidence.steps.tolist().index(37)
    for name, table in shorter.evidence.metrics.items():
        assert table[0, -1] == dense.evidence.metrics[name][0, place], name


@given(st.integers(1, 10**6))
def test_every_octave_is_looked_at(n_steps: int) -> None:
    steps = probe_steps(n_steps)
    assert steps[0] == 0
    assert steps[-1] == n_steps
    assert tail_start(n_steps) in steps
    assert list(steps) == sorted(set(steps))
    assert all(later <= max(earlier + 1, 1.25 * earlier) for earlier, later in pairwise(steps))
    assert len(steps) <= 4 * n_steps.bit_length() + 3


@given(st.integers(1, 10**5), st.floats(0, 100), st.floats(0, 100))
def test_fewer_probes_are_some_of_the_more(n_steps: int, most: float, more: float) -> None:
    few, many = (probe_steps(n_steps, most=each) for each in sorted((most, more)))
    assert {0, tail_start(n_steps), n_steps} <= {*few} <= {*many} <= {*probe_steps(n_steps)}
    assert len(few) <= max(min(most, more), 3)


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
    assert probe_steps_of(workload, defaults(workload, **WIDE, probe_every=1)) == tuple(range(1001))


def test_problems_with_published_curves_keep_all_probes() -> None:
    curves: list[tuple[Workload[Any], dict[str, Value]]] = [
        (FormalLanguages(), {}),
        (CategoryPairs(), load_sweep("shin_flavours").fixed()),
    ]
    for workload, values in curves:
        parameters = defaults(workload, **values)
        assert probe_steps_of(workload, parameters) == probe_steps(parameters.n_steps)
    epochs = defaults(FormalLanguages(), n_epochs=3, steps_per_epoch=50)
    assert probe_steps_of(FormalLanguages(), epochs) == (0, 50, 100, 150)


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


def _prune_at(n_lanes: int) -> list[int | None]:
    return [AT if lane in PRUNED else None for lane in range(n_lanes)]


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


@pytest.mark.parametrize("name", ["pairs, adam", pytest.param("pairs, lbfgs", marks=pytest.mark.scale)])
def test_it_is_the_same_to_know_it_before(name: str) -> None:
    workload, trainings = _case_of_40(name)
    pruned = _at_probe(Pack(workload, trainings), AT)
    pruned.prune(PRUNED)
    known = _ended(Pack(workload, trainings, prune_at=_prune_at(8)))
    assert known.result().pruned_step.tolist() == _ended(pruned).result().pruned_step.tolist()
    _assert_same_end(pruned, known)
    alone = _ended(Pack(workload, [trainings[4]], prune_at=[AT])).result()
    assert (alone.n_steps[0], alone.pruned_step[0]) == (known.result().n_steps[4], AT)
    np.testing.assert_array_equal(alone.last("eval_loss")[0], known.result().last("eval_loss")[4])


def _resumed(
    pack: Pack[Any], case: tuple[Workload[Any], list[Training[Any]]], known: Sequence[int | None]
) -> Pack[Any]:
    content = to_bytes(pack.checkpoint())
    return Pack.resumed(*case, from_bytes(content), prune_at=known)


def test_a_checkpoint_keeps_who_was_pruned() -> None:
    case = _case_of_40("pairs, adam")
    pack = _at_probe(Pack(*case), AT)
    pack.prune(PRUNED)
    pack.advance(3)
    _assert_same_end(_ended(_resumed(pack, case, [None] * 8)), _ended(pack))
    assert _resumed(pack, case, [None] * 8).result().pruned_step.tolist() == pack.result().pruned_step.tolist()


def test_who_should_have_been_pruned_before_a_checkpoint_ends_there() -> None:
    case = _case_of_40("pairs, adam")
    resumed = _resumed(_at_probe(Pack(*case), 27), case, _prune_at(8))
    assert not set(resumed.running) & set(PRUNED)
    result = _ended(resumed).result()
    assert set(result.pruned_step[PRUNED].tolist()) == {27}
    assert result.n_steps[PRUNED].max() == 27
