"""Continuations of a training: with its own draws each ends as it did, to the last bit; with others it has its past."""

from typing import Any

import numpy as np
import pytest
import torch

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.checkpoint import Checkpoint
from attnsweep.workloads.engine.continued import Redraw, Redrawn, drawn_for_evaluation
from attnsweep.workloads.engine.contract import Batch, Lanes, Training, Workload
from attnsweep.workloads.engine.lane_store import LaneStore
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.result import PackResult
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.gpt import GPTWorkload
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults
from attnsweep.workloads.translation import Translation
from tests.workloads.engine.test_checkpoint import SENTENCES, STRINGS

SAMPLED: dict[str, Value] = {
    "variant": "categories_only",
    "expectation": "sampled",
    "batch_size": 5,
    "n_categories": 3,
    "n_positions": 4,
    "n_steps": 40,
    "optimizer": "adam",
}
CHAIN: dict[str, Value] = {
    "task": "order_2_chain",
    "n_words": 4,
    "n_tokens": 8,
    "d_model": 4,
    "d_ffn": 4,
    "n_steps": 12,
    "batch_size": 4,
    "eval_batch_size": 4,
}
CASES: dict[str, tuple[Workload[Any], dict[str, Value], int, Redrawn]] = {
    "pairs": (CategoryPairs(), SAMPLED, 17, "data"),
    "pairs, from the start": (CategoryPairs(), SAMPLED, 0, "data"),
    "strings": (FormalLanguages(), STRINGS | {"n_steps": 20}, 6, "data"),
    "chain": (GPTWorkload(), CHAIN, 5, "data"),
    "sentences": (Translation(), {**SENTENCES, "dropout": 0.2}, 1, "noise"),
}


def _at(workload: Workload[Any], training: Training[Any], step: int) -> Checkpoint:
    pack = Pack(workload, [training], extra_probe_steps=[step])
    while pack.step < step or not pack.result().evidence.metrics:
        pack.advance(1, 1)
    return pack.checkpoint()


def _continued(workload: Workload[Any], training: Training[Any], redraw: Redraw) -> tuple[PackResult, Pack[Any]]:
    state = _at(workload, training, redraw.step)
    pack = Pack.continued(workload, training, state, redraw, extra_probe_steps=[redraw.step])
    return pack.train_to_end(), pack


@pytest.mark.parametrize("case", CASES)
def test_with_its_own_draws_a_training_ends_as_it_did_and_with_others_it_has_its_past(case: str) -> None:
    workload, values, step, what = CASES[case]
    training = Training(defaults(workload, **values), 11)
    whole = Pack(workload, [training], extra_probe_steps=[step])
    expected = whole.train_to_end()
    redraw = Redraw(what, [11, 5, 11, 6], step, drawn_for_evaluation(workload, training))
    found, pack = _continued(workload, training, redraw)
    before = found.evidence.steps <= step
    for name, values_LP in found.evidence.metrics.items():
        for lane in (0, 2):
            np.testing.assert_array_equal(values_LP[lane], expected.evidence.metrics[name][0], name)
        np.testing.assert_array_equal(values_LP[:, before], np.tile(values_LP[0, before], (4, 1)), name)
    for one, other in zip(found.heads, expected.heads, strict=True):
        assert (one.step, one.lanes.tolist()) == (other.step, [0, 1, 2, 3])
        for name, scores in one.heads.scores.items():
            np.testing.assert_array_equal(scores[0], other.heads.scores[name][0], name)
    assert ("pairs" not in case) == bool(found.heads and found.heads[0].step < step)
    assert all(np.array_equal(values[0], values[1]) for values in found.evidence.levels.values())
    ended = [list(state.values()) for _, state in (whole.final_state(np.array([0])), pack.final_state(np.arange(4)))]
    for one, four in zip(*ended, strict=True):
        assert torch.equal(one[0], four[0])
    rows = pack.checkpoint()["rows"]
    assert not np.array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[1], rows[3])


def _found(workload: Workload[Any], training: Training[Any], what: Redrawn, step: int) -> set[str]:
    """The streams that a step's batch draws anew."""
    kept = frozenset[str]() if step else drawn_for_evaluation(workload, training)
    redraw = Redraw(what, [1], step, kept)
    LaneStore(workload, [training], "cpu", None, None, redraw).batch_at(step)
    return redraw.found


class Teacher(CategoryPairs):
    """Draws a rule for each batch and for the held-out data, the same at all steps."""

    name = "teacher"

    def batch(self, lanes: Lanes[Any], step: int) -> Batch:
        return {**super().batch(lanes, step), "rule": lanes.streams.normal("rule", (3,))}

    def eval_batch(self, lanes: Lanes[Any]) -> Batch:
        lanes.streams.normal("rule", (3,))
        return super().eval_batch(lanes)


@pytest.mark.parametrize("step", [0, 9])
def test_the_task_is_never_drawn_anew(step: int) -> None:
    training = Training(defaults(Teacher(), **SAMPLED), 3)
    assert _found(Teacher(), training, "data", step) == {"batch"}
