"""Interventions in translators: their heads are clamped and scaled, and lanes without are as in packs without."""

from typing import Any

import numpy as np
import pytest
import torch

from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.intervening import hold_as, make_room
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.translation.model import TranslationModel
from attnsweep.workloads.translation.parameters import TranslationParameters
from tests.workloads.translation.small_translation import WORKLOAD, batch_of, random_model, small

TEXTS = (
    None,
    "clamp 0:1 next_token 0..",
    "clamp 1:0 previous_token 3..9; clamp 2:1 uniform 5..",
    "scale attention 3 4..; clamp 0:0 none 0..8",
    "freeze encoder_self 0..; scale 2:0 0.5 0..7",
)


def _training(text: str | None) -> Training[TranslationParameters]:
    return Training(small(n_steps=12, probe_every=12, head_sentences=12, test_sentences=0, intervention=text), 3)


def _trained(*texts: str | None, at_once: int = 1_000) -> tuple[State, Any]:
    pack = Pack(WORKLOAD, [_training(text) for text in texts])
    result = pack.train_to_end(at_once)
    return pack.final_state(np.arange(len(texts)))[1], result


@pytest.mark.slow
def test_each_translator_of_a_mixed_pack_trains_as_if_alone() -> None:
    state, result = _trained(*TEXTS, at_once=5)
    for lane, text in list(enumerate(TEXTS))[::2]:
        alone, of_alone = _trained(text)
        assert all(torch.equal(value[0], state[name][lane]) for name, value in alone.items()), text
        for step, (one, other) in enumerate(zip(of_alone.heads, result.heads, strict=True)):
            for name, scores in one.heads.scores.items():
                np.testing.assert_array_equal(
                    scores[0], other.heads.scores[name][lane], err_msg=f"{text} {step} {name}"
                )


def _held(text: str, **values: Any) -> TranslationModel:
    model = random_model(small(**values))
    training = Training(small(**values, intervention=text), 0)
    make_room([model], [training])
    (state,) = [Pack(WORKLOAD, [training]).final_state(np.array([0]))[1]]
    hold_as(
        model, {name: value[0].double() if value.is_floating_point() else value[0] for name, value in state.items()}
    )
    return model


@pytest.mark.parametrize(
    ("pattern", "offset"), [("previous_token", -1), ("self", 0), ("next_token", 1), ("uniform", None), ("none", None)]
)
def test_a_clamped_head_of_the_encoder_has_its_pattern(pattern: str, offset: int | None) -> None:
    """Sentences of several lengths, whose keys are filled up to a vector."""
    model, batch = _held(f"clamp 0:1 {pattern} 0.."), batch_of(small(), np.arange(8))
    weight_BQK, free_BQK = model.attention(batch)["encoder_self"].unbind(1)[::-1]
    is_word_BK = batch["source"] != 0
    assert torch.equal(free_BQK, random_model(small()).attention(batch)["encoder_self"][:, 0])
    for words_K, weight_QK in zip(is_word_BK, weight_BQK, strict=True):
        n = int(words_K.sum())
        own = weight_QK[:n, :n]
        assert weight_QK[:n, n:].eq(0).all()
        if offset is None:
            assert own.eq(0.0 if pattern == "none" else 1 / n).all()
        else:
            # At an end of the sentence, where there is no such token, it looks at itself.
            place = torch.arange(n) + offset
            expected = torch.where((place < 0) | (place >= n), torch.arange(n), place)
            assert torch.equal(own, torch.eye(n, dtype=own.dtype)[expected])
