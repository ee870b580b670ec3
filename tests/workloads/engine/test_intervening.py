"""Interventions: what they do to a training, and that they leave no trace in the bits of the others of its pack."""

from typing import Any

import numpy as np
import pytest
import torch

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.captured import Graphs
from attnsweep.workloads.engine.compiling.programs import Programs
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.executors import Executors
from attnsweep.workloads.engine.intervening import hold_as
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.gpt import GPTWorkload
from attnsweep.workloads.testing import defaults
from tests.refusals import refused
from tests.workloads.engine.recorded_graph import RecordedGraph

GPT, PAIRS = GPTWorkload(), CategoryPairs()
SMALL: dict[str, Any] = {
    **{"task": "induction", "n_words": 8, "n_tokens": 8, "n_blocks": 2, "d_model": 6, "d_ffn": 7},
    **{
        "batch_size": 3,
        "eval_batch_size": 4,
        "n_steps": 24,
        "probe_every": 4,
        "optimizer": "adam",
        "stop_when_solved": False,
    },
}
SMALL_P: dict[str, Any] = {"variant": "positions_only", "n_categories": 3, "n_positions": 5, "n_steps": 40}
TEXTS = (
    None,
    "freeze attention.query 0..9",
    "kick 0.1 at 8",
    "clamp 0:0 previous_token 5..",
    "clamp 1:0 none 0..12; freeze ffn 7..; kick 0.5 at 20",
    "scale 0:0 4 5..15; scale attention 0.5 10..",
    "clamp 1:0 self 2..15; scale 0:0 3 1..4; freeze value 2..; kick 0.2 at 8",
)
QUERY = "blocks.0.attention.query.weight"


def _gpt(text: str | None, seed: int = 3, **values: Any) -> Training[Any]:
    return Training(defaults(GPT, **SMALL | values, intervention=text), seed)


def _pairs(text: str | None, seed: int = 3) -> Training[Any]:
    return Training(defaults(PAIRS, **SMALL_P, intervention=text), seed)


def _ends(pack: Pack[Any], n_lanes: int, at_once: int = 1_000) -> State:
    pack.train_to_end(at_once)
    return pack.final_state(np.arange(n_lanes))[1]


def _at(training: Training[Any], step: int) -> State:
    pack = Pack(GPT, [training], extra_probe_steps=[step])
    while pack.step < step:
        pack.advance(1_000, 1)
    return pack.final_state(np.array([0]))[1]


def test_no_training_depends_on_the_interventions_of_others_or_on_a_stop() -> None:
    trainings = [_gpt(text) for text in TEXTS]
    together = Pack(GPT, trainings)
    for n_steps in (9, 10):
        together.advance(n_steps)
        together = Pack.resumed(GPT, trainings, together.checkpoint())
    ends, curves = _ends(together, len(TEXTS), 7), together.result().evidence.metrics
    for lane, text in enumerate(TEXTS):
        pack = Pack(GPT, [_gpt(text)])
        alone = _ends(pack, 1)
        assert all(torch.equal(value[0], ends[name][lane]) for name, value in alone.items()), text
        np.testing.assert_array_equal(pack.result().evidence.metrics["eval_loss"][0], curves["eval_loss"][lane])
    assert all(not torch.equal(ends[QUERY][0], ends[QUERY][lane]) for lane in range(1, len(TEXTS)))


@pytest.mark.parametrize("engine", ["compiled", "graphs"])
def test_programs_of_steps_freeze_and_kick_too(engine: str, compiled: None) -> None:
    start = Pack(PAIRS, [_pairs(None)]).final_state(np.array([0]))[1]
    first, last = min(start), max(start)
    texts = (None, f"freeze {first} 3..30", "kick 0.3 at 17", f"freeze {last} 0..; kick 0.3 at 9")
    known = Programs()

    def programs() -> Executors:
        return known if engine == "compiled" else Graphs(RecordedGraph, 4)

    ends = _ends(Pack(PAIRS, [_pairs(text) for text in texts], programs=programs()), len(texts), 11)
    plain = _ends(Pack(PAIRS, [_pairs(text) for text in texts]), len(texts))
    for lane, text in enumerate(texts):
        alone = _ends(Pack(PAIRS, [_pairs(text)], programs=programs()), 1)
        assert all(torch.equal(value[0], ends[name][lane]) for name, value in alone.items()), text
        assert all(torch.allclose(ends[name][lane], value[lane], rtol=1e-9) for name, value in plain.items()), text
    # A kick leaves alone what is frozen.
    assert torch.equal(ends[last][3], start[last][0])


def test_frozen_parameters_stay_and_the_others_move() -> None:
    start, frozen, released = _at(_gpt(TEXTS[1]), 0), _at(_gpt(TEXTS[1]), 9), _at(_gpt(TEXTS[1]), 10)
    assert torch.equal(start[QUERY], frozen[QUERY])
    assert not torch.equal(start["head.weight"], frozen["head.weight"])
    assert not torch.equal(frozen[QUERY], released[QUERY])


def test_a_kick_has_its_size_and_comes_after_the_probe() -> None:
    kicked, plain = _at(_gpt("kick 0.1 at 8", optimizer="sgd", learning_rate=1e-12), 8), _at(_gpt(None), 8)
    after = _at(_gpt("kick 0.1 at 8", optimizer="sgd", learning_rate=1e-12), 9)
    names = [name for name in kicked if name in plain and kicked[name].is_floating_point()]
    norm = torch.cat([kicked[name].flatten() for name in names]).norm()
    moved = torch.cat([(after[name] - kicked[name]).flatten() for name in names]).norm()
    assert 0.08 < float(moved / norm) < 0.12


@pytest.mark.parametrize(
    ("pattern", "row"),
    [
        ("previous_token", [0, 0, 1, 0]),
        ("uniform", [0.25] * 4),
        ("none", [0] * 4),
        ("self", [0, 0, 0, 1]),
        # A causal head does not see the next token.
        ("next_token", [0, 0, 0, 1]),
    ],
)
def test_a_clamped_head_has_its_pattern_and_gets_no_gradient(pattern: str, row: list[float]) -> None:
    training = _gpt(f"clamp 0:0 {pattern} 0..", optimizer="sgd")
    start, end = _at(training, 0), _at(training, 24)
    assert torch.equal(start[QUERY], end[QUERY])
    assert not torch.equal(start["blocks.1.attention.query.weight"], end["blocks.1.attention.query.weight"])
    module: Any = GPT.build(training.parameters)
    hold_as(module, {name: value[0] for name, value in end.items()})
    weights = module.attention(torch.arange(8)[None])
    assert weights[0, 0, 0, 3, :4].tolist() == row


@pytest.mark.parametrize("text", ["scale 0:0 2 0..", "scale 0:0 4 0..; scale 0:0 0.5 0..; scale 1:1 1 0.."])
def test_the_logits_of_a_scaled_head_are_multiplied(text: str) -> None:
    weights = []
    for own in (text, None):
        training = _gpt(own, n_heads=2)
        state = {name: value[0] for name, value in _at(training, 0).items()}
        module: Any = GPT.build(training.parameters)
        hold_as(module, state)
        module.load_state_dict(state, strict=False)
        if own is None:
            # The queries of head 0 are the first half.
            for value in (module.blocks[0].attention.query.weight, module.blocks[0].attention.query.bias):
                value.data[:3] *= 2
        weights.append(module.attention(torch.arange(8)[None])[0])
    assert torch.equal(*weights)


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("scale 0:1 2 0..", "intervention"),
        ("clamp 2:0 none 0..", "intervention"),
        ("freeze attention.querry 0..5", "intervention"),
    ],
)
def test_what_a_model_does_not_have_is_refused(text: str, subject: str) -> None:
    with refused(subject, SpecError):
        Pack(GPT, [_gpt(None), _gpt(text)])
