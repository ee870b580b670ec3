"""A pruned training ends at a probe, to the last bit as a training that is known to end there; the others go on."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from attnsweep.workloads.engine.checkpoint import from_bytes, to_bytes
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.pack import Pack
from tests.workloads.engine.test_checkpoint import _assert_same_end, _case, _ended

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


def test_a_training_is_pruned_once() -> None:
    case = _case_of_40("pairs, adam")
    pack = _at_probe(Pack(*case), AT)
    pack.prune(PRUNED)
    _at_probe(pack, 27).prune([*PRUNED, 0])
    assert pack.result().pruned_step[[0, *PRUNED]].tolist() == [27, AT, AT, AT]
