"""A pack resumed from a checkpoint ends like an undisturbed one, to the last bit."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.checkpoint import Checkpoint, CheckpointError, from_bytes, to_bytes
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.result import PackResult
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults
from attnsweep.workloads.translation import Translation
from tests.workloads.translation.small_translation import SMALL

WORKLOADS: dict[str, Workload[Any]] = {
    workload.name: workload for workload in (CategoryPairs(), FormalLanguages(), Translation())
}
PAIRS: dict[str, Value] = {"n_categories": 3, "n_positions": 4, "n_steps": 120}
STRINGS: dict[str, Value] = {
    "n_steps": 40,
    "train_length": 5,
    "eval_batch_size": 20,
    "test_batch_size": 5,
    "longest_test_length": 12,
    "d_model": 6,
    "d_ffn": 8,
}
SENTENCES: dict[str, Value] = {**SMALL, "n_steps": 12, "n_probes": 3, "eval_sentences": 6, "head_sentences": 6}
# Learning rates from too small to solve to diverging, early or late.
RATES: dict[str, list[float]] = {
    "sgd": [1e-3, 0.3, 3.0, 30.0],
    "adam": [1e-3, 0.1, 0.3, 1e200],
    "adamw": [1e-3, 0.1, 0.3, 1e200],
    "lbfgs": [1.0, 1e-2, 30.0, 1e200],
}
SAMPLED: dict[str, Value] = {"variant": "categories_only", "expectation": "sampled", "batch_size": 5}
MIXED: dict[str, Value] = {"dtype": "bfloat16", "float32_state": True}
CASES: dict[str, tuple[str, dict[str, Value], list[dict[str, Value]]]] = {
    "pairs, sgd": ("category_pairs", {**PAIRS, "optimizer": "sgd"}, [{"momentum": 0.9}, {"weight_decay": 0.1}]),
    "pairs, adam": ("category_pairs", {**PAIRS, "optimizer": "adam"}, [{}, {"gradient_clip_norm": 0.1}]),
    "pairs, adamw": (
        "category_pairs",
        {**PAIRS, "optimizer": "adamw", "learning_rate_schedule": "cosine"},
        [{"warmup_steps": 30}, {"weight_decay": 0.1}],
    ),
    "pairs, lbfgs": ("category_pairs", {**PAIRS, "n_steps": 40, "optimizer": "lbfgs"}, [{}, {}, {"init_sigma": 0.0}]),
    "pairs, float32 state": ("category_pairs", {**PAIRS, "optimizer": "sgd", **MIXED}, [{"momentum": 0.9}, {}]),
    "pairs, sampled": ("category_pairs", {**PAIRS, **SAMPLED, "optimizer": "sgd"}, [{}, {"momentum": 0.5}]),
    "strings, adam": ("formal_languages", {**STRINGS, "optimizer": "adam"}, [{}, {"train_length": 40}]),
    "sentences, adam": ("translation", {**SENTENCES, "optimizer": "adam"}, [{"window": 1, "num_pos": 2}, {}]),
}


def _case(name: str) -> tuple[Workload[Any], list[Training[Any]]]:
    """Eight trainings with very different ends."""
    workload, shared, own = CASES[name][0], CASES[name][1], CASES[name][2]
    rates = RATES[str(shared["optimizer"])]
    settings = [{**shared, **own[lane % len(own)], "learning_rate": rates[lane % len(rates)]} for lane in range(8)]
    found = WORKLOADS[workload]
    return found, [Training(defaults(found, **values), seed) for seed, values in enumerate(settings)]


def _ended(pack: Pack[Any]) -> Pack[Any]:
    pack.train_to_end()
    return pack


@cache
def _undisturbed(name: str) -> tuple[Pack[Any], int]:
    """A case trained without interruption, and the number of its evaluations."""
    pack = Pack(*_case(name))
    n_evaluations = 0
    while not pack.advance(1):
        n_evaluations += 1
    return pack, n_evaluations


def _assert_equal(one: PackResult, other: PackResult) -> None:
    for group in ("metrics", "levels"):
        values, others = getattr(one.evidence, group), getattr(other.evidence, group)
        assert values.keys() == others.keys()
        for name in values:
            np.testing.assert_array_equal(values[name], others[name], err_msg=name)
    np.testing.assert_array_equal(one.evidence.steps, other.evidence.steps)
    for name in ("last_probe", "diverged_step", "n_steps"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for probe, other_probe in zip(one.heads, other.heads, strict=True):
        assert probe.step == other_probe.step
        np.testing.assert_array_equal(probe.lanes, other_probe.lanes)
        np.testing.assert_array_equal(probe.heads.role, other_probe.heads.role)
        assert probe.heads.scores.keys() == other_probe.heads.scores.keys()
        for name, score in probe.heads.scores.items():
            np.testing.assert_array_equal(score, other_probe.heads.scores[name], err_msg=name)


def _assert_same_end(one: Pack[Any], other: Pack[Any], probe_steps: Sequence[int] | None = None) -> None:
    _assert_equal(one.result() if probe_steps is None else one.result().at(probe_steps), other.result())
    every = np.arange(one.result().n_steps.size)
    (_, state), (_, other_state) = one.final_state(every), other.final_state(every)
    assert state.keys() == other_state.keys()
    for name, value in state.items():
        np.testing.assert_array_equal(value.double().numpy(), other_state[name].double().numpy(), err_msg=name)


@pytest.mark.sample("pairs, sgd", "pairs, lbfgs", "pairs, float32 state")
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@settings(max_examples=2, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(data=st.data())
def test_a_resumed_pack_ends_as_an_undisturbed_one(name: str, data: st.DataObject) -> None:
    undisturbed, n_evaluations = _undisturbed(name)
    workload, trainings = _case(name)
    pack = Pack(workload, trainings)
    pack.advance(data.draw(st.integers(0, n_evaluations), label="first break"))
    again = Pack.resumed(workload, trainings, from_bytes(to_bytes(pack.checkpoint())))
    again.advance(data.draw(st.integers(0, n_evaluations), label="from there to the second break"))
    content = to_bytes(again.checkpoint())
    _assert_same_end(_ended(again), undisturbed)
    _assert_same_end(_ended(Pack.resumed(workload, trainings, from_bytes(content))), undisturbed)
    _assert_same_end(_ended(pack), undisturbed)


@pytest.mark.slow
def test_lbfgs_resumes_at_every_evaluation() -> None:
    """Checkpoints at the start, within and between searches, with some lanes ahead, and with some ended."""
    name = "pairs, lbfgs"
    undisturbed, n_evaluations = _undisturbed(name)
    workload, trainings = _case(name)
    pack = Pack(workload, trainings)
    searching = 0
    for _ in range(n_evaluations):
        pack = Pack.resumed(workload, trainings, pack.checkpoint())
        pack.advance(1)
        searching += bool(pack.checkpoint().get("optimizer/search/_is_zooming", np.array(False)).any())
    assert searching > 3
    assert pack.advance(1), "evaluations were made twice: a search began anew"
    _assert_same_end(pack, undisturbed)


def _some_checkpoint() -> Checkpoint:
    pack = Pack(*_case("pairs, lbfgs"))
    pack.advance(9)
    return pack.checkpoint()


CONTENT = to_bytes(_some_checkpoint())


@settings(max_examples=150)
@given(place=st.integers(0, len(CONTENT) - 1), mask=st.integers(1, 255), is_cut=st.booleans())
@example(place=0, mask=1, is_cut=False)
@example(place=len(CONTENT) - 1, mask=128, is_cut=False)
@example(place=0, mask=1, is_cut=True)
@example(place=31, mask=1, is_cut=True)
@example(place=32, mask=1, is_cut=True)
@example(place=len(CONTENT) - 1, mask=1, is_cut=True)
def test_a_changed_byte_or_a_missing_end_is_noticed(place: int, mask: int, is_cut: bool) -> None:
    damaged = bytearray(CONTENT)
    damaged[place] ^= mask
    content = CONTENT[:place] if is_cut else bytes(damaged)
    with pytest.raises(CheckpointError):
        from_bytes(content)


def _others(trainings: Sequence[Training[Any]]) -> dict[str, list[Training[Any]]]:
    first = trainings[0]
    values = {**first.parameters.values(), "learning_rate": 0.5}
    return {
        "another seed": [Training(first.parameters, 99), *trainings[1:]],
        "another parameter": [Training(type(first.parameters).resolve(values), first.seed), *trainings[1:]],
        "another order": [*trainings[1:], first],
        "fewer": list(trainings[1:]),
        "more": [*trainings, first],
    }


@pytest.mark.parametrize("other", ["another seed", "another parameter", "another order", "fewer", "more"])
def test_other_trainings_are_refused(other: str) -> None:
    workload, trainings = _case("pairs, lbfgs")
    with pytest.raises(CheckpointError):
        Pack.resumed(workload, _others(trainings)[other], from_bytes(CONTENT))
