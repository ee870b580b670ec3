"""What gradient flow conserves, in the curves of trainings that ask for it."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.gpt import GPTWorkload
from attnsweep.workloads.gradients.subject import at_weights
from attnsweep.workloads.identities import Group
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults

GPT = GPTWorkload()
TINY: dict[str, Value] = {
    "batch_size": 4,
    "eval_batch_size": 6,
    "d_model": 8,
    "n_heads": 2,
    "d_ffn": 6,
    "dtype": "float64",
    "optimizer": "sgd",
    "learning_rate": 0.5,
    "n_steps": 8,
    "record_charges": True,
}
LANES: list[dict[str, Value]] = [{}, {"layer_norm_eps": 0.0, "init_sigma": 0.3}, {"learning_rate": 0.1}]
Curves = dict[str, NDArray[np.float64]]


def trainings(lanes: list[dict[str, Value]], **values: Value) -> list[Training[Any]]:
    return [Training(defaults(GPT, **(TINY | each | values)), seed) for seed, each in enumerate(lanes)]


def ended(pack: Pack[Any]) -> Curves:
    """(L, P) by metric."""
    return pack.train_to_end().evidence.metrics


def is_conserved(metric: str) -> bool:
    return metric.startswith("charge_") or metric.endswith("_drift")


@pytest.mark.slow
def test_recording_adds_metrics_and_changes_no_other_bit() -> None:
    recorded, plain = (ended(Pack(GPT, trainings(LANES, record_charges=on))) for on in (True, False))
    assert {name for name in recorded if name not in plain} == {
        "null_drift",
        "sum_drift",
        *(f"charge_{kind}{what}" for kind in ("qk", "vo", "neurons", "norm_gain", "scale") for what in ("", "_drift")),
    }
    assert not any(is_conserved(name) for name in plain)
    for name, values in plain.items():
        assert_array_equal(recorded[name], values, name)


def test_one_step_moves_charges_by_the_squared_rate_times_that_of_the_gradient() -> None:
    lanes = trainings([{}, {}], n_steps=1)
    start = Pack(GPT, lanes)
    subject = at_weights(GPT, lanes, start.final_state(np.arange(2))[1], "the start")
    assert subject is not None
    moved = ended(start)["charge_qk_drift"]
    for lane, at in enumerate(subject.points()):
        declared = [each for each in GPT.identities(lanes[lane].parameters) if isinstance(each, Group)]
        of_gradient = [each.charge(at.gradients).abs().max().item() for each in declared if each.kind == "qk"]
        assert len(of_gradient) == 2
        assert_allclose(moved[lane], [0.0, 0.5**2 * max(of_gradient)], rtol=1e-9)
        assert moved[lane, 1] > 1e-12


@pytest.mark.slow
def test_gradient_descent_keeps_sums_and_adam_keeps_nothing() -> None:
    descent, adam = (
        ended(Pack(GPT, trainings([{}], optimizer=optimizer, learning_rate=1e-2, n_steps=30, dtype="float32")))
        for optimizer in ("sgd", "adam")
    )
    assert descent["null_drift"][0, -1] < 1e-8 < 1e-5 < adam["null_drift"][0, -1]
    assert descent["sum_drift"][0, -1] < 1e-5 < 1e-2 < adam["sum_drift"][0, -1]
    assert descent["charge_qk_drift"][0, -1] < 1e-3 * adam["charge_qk_drift"][0, -1]


@pytest.mark.slow
def test_a_training_that_does_not_declare_a_quantity_has_no_number_for_it() -> None:
    scale = ended(Pack(GPT, trainings(LANES)))["charge_scale"]
    # Only without an epsilon does the loss not see the scale of the residual stream.
    assert_array_equal(np.isfinite(scale).all(1), [False, True, False])


@pytest.mark.slow
@pytest.mark.sample("lanes2")
@pytest.mark.parametrize("lanes", [[0], [2, 1], [1, 2, 0, 1]])
def test_the_numbers_do_not_depend_on_the_pack(lanes: list[int]) -> None:
    all_trainings = trainings(LANES)
    fused = ended(Pack(GPT, all_trainings))
    other = ended(Pack(GPT, [all_trainings[lane] for lane in lanes]))
    for name in filter(is_conserved, other):
        assert_array_equal(fused[name][lanes], other[name], name)


@pytest.mark.slow
def test_a_resumed_training_drifts_from_where_it_first_started() -> None:
    all_trainings = trainings(LANES)
    undisturbed = ended(Pack(GPT, all_trainings))
    pack = Pack(GPT, all_trainings)
    pack.advance(4)
    resumed = ended(Pack.resumed(GPT, all_trainings, pack.checkpoint()))
    for name in filter(is_conserved, undisturbed):
        assert_array_equal(undisturbed[name], resumed[name], name)


@pytest.mark.slow
def test_the_drift_of_those_that_go_on_is_their_own_after_others_have_ended() -> None:
    wild: dict[str, Value] = {"learning_rate": 1e300}
    alone = ended(Pack(GPT, trainings([wild, {}])[1:]))
    beside = ended(Pack(GPT, trainings([wild, {}])))
    assert np.isnan(beside["charge_qk_drift"][0, -1])
    assert_array_equal(beside["charge_qk_drift"][1], alone["charge_qk_drift"][0])
