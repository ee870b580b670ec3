"""A user's text as a task of GPTs: windows, held-out part, levels, outcomes, and the file that names it.

Axes: L lane, B sequence, T token.
"""

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from attnsweep.orchestrator.storage.stored_code import named_files
from attnsweep.orchestrator.tools.prepare_corpus.preparing import prepare_text
from attnsweep.orchestrator.tools.prepare_corpus.rows import PreparationSettings
from attnsweep.orchestrator.tools.prepare_corpus.vocabulary import Unit
from attnsweep.workloads.engine.contract import Lanes, Training
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.outcomes import Evidence
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.gpt import GPTParameters, GPTWorkload
from attnsweep.workloads.gpt.text import END, Text, read_text
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults
from tests.refusals import refused

RHYME = [f"{number} little birds sat on a wall, {number} little birds in all" for number in range(100, 160)]


def prepared(folder: Path, lines: list[str] = RHYME, unit: Unit = "characters", **settings: float) -> Path:
    """The file of a prepared text."""
    (folder / "plain.txt").write_text("\n".join(lines))
    settings = {"held_out": 0.3} | settings
    out = folder / "text.parquet"
    prepare_text(folder / "plain.txt", out, None, PreparationSettings(unit=unit, **settings))  # type: ignore[arg-type]
    return out


WORKLOAD = GPTWorkload()
TINY: dict[str, Value] = {"task": "text", "n_tokens": 8, "n_steps": 6, "batch_size": 4, "eval_batch_size": 6}


def parameters(corpus: Path, /, **values: Value) -> GPTParameters:
    return defaults(WORKLOAD, **{**TINY, "corpus": str(corpus), **values})


def lanes_of(corpus: Path, n: int = 2, **values: Value) -> Lanes[GPTParameters]:
    return Lanes([Training(parameters(corpus, **values), seed) for seed in range(n)], torch.device("cpu"))


def written(text: Text, part: np.ndarray) -> list[str]:
    return "".join(text.words[token] if token != END else "\n" for token in part).splitlines()


@pytest.mark.parametrize("unit", ["characters", "words"])
def test_a_text_is_read_as_it_was_prepared(tmp_path: Path, unit: str) -> None:
    text = read_text(prepared(tmp_path, unit=unit, min_frequency=1))  # type: ignore[arg-type]
    train, held_out = written(text, text.train), written(text, text.held_out)
    lines = RHYME if unit == "characters" else ["".join(line.split()) for line in RHYME]
    known = [line for line in lines if line in train]
    assert train == known
    assert len(train) + len(held_out) == len(lines)
    assert 8 < len(held_out) < 28
    # Digits or numbers may be unknown, because only the training part makes the vocabulary.
    assert all(line[3:] in {each[3:] for each in lines} or "<unk>" in line for line in held_out)


def test_steps_see_the_training_part_and_losses_the_held_out_part(tmp_path: Path) -> None:
    corpus = prepared(tmp_path)
    text, lanes = read_text(corpus), lanes_of(corpus)
    for batch, part in ((WORKLOAD.batch(lanes, 3), text.train), (WORKLOAD.eval_batch(lanes), text.held_out)):
        windows = {tuple(row) for row in np.lib.stride_tricks.sliding_window_view(part, 9).tolist()}
        whole = torch.cat([batch["token"], batch["target"][..., -1:]], -1)
        assert {tuple(row) for row in whole.flatten(0, 1).tolist()} <= windows
        assert torch.equal(batch["token"][..., 1:], batch["target"][..., :-1])
        torch.testing.assert_close(batch["weight"].sum((1, 2)), torch.ones(2))
    assert not torch.equal(WORKLOAD.batch(lanes, 3)["token"], WORKLOAD.batch(lanes, 4)["token"])
    assert not torch.equal(WORKLOAD.batch(lanes, 3)["token"][0], WORKLOAD.batch(lanes, 3)["token"][1])


def test_levels_are_the_training_parts_laws_on_held_out_windows(tmp_path: Path) -> None:
    corpus = prepared(tmp_path)
    lanes, train = lanes_of(corpus), read_text(corpus).train.tolist()
    batch, V = WORKLOAD.eval_batch(lanes), lanes.shared.n_words
    ones, pairs, firsts = Counter(train[1:]), Counter(pairwise(train)), Counter(train[:-1])
    unigram = [(ones[word] + 1 / V) / (len(train) - 1 + 1) for word in range(V)]
    expected = {"constant": 0.0, "current": 0.0}
    for token, target in zip(batch["token"][1].flatten().tolist(), batch["target"][1].flatten().tolist(), strict=True):
        expected["constant"] -= math.log(unigram[target]) / 48
        expected["current"] -= math.log((pairs[token, target] + unigram[target]) / (firsts[token] + 1)) / 48
    for name, value in expected.items():
        assert batch[f"level/{name}"][1].item() == pytest.approx(value, rel=1e-6)
    assert expected["current"] < expected["constant"] < math.log(V)
    assert batch["level/optimum"].isnan().all()


def test_a_text_is_never_solved_and_may_be_overfit(tmp_path: Path) -> None:
    levels = {"zero": 4.0, "constant": 3.0, "current": 2.0, "solved": math.nan}
    held_out = [[4.0, 1.0, 1.2, 1.2], [4.0, 1.0, 1.2, 1.2], [4.0, 3.5, 3.0, 2.01], [4.0, 3.5, 3.2, 0.001]]
    train = [[4.0, 1.0, 0.5, 0.5], [4.0, 1.0, 1.1, 1.1], [4.0, 3.5, 3.0, 2.0], [4.0, 3.5, 3.2, 0.001]]
    evidence = Evidence(
        steps=np.array([0, 5, 10, 20]),
        metrics={"eval_loss": np.array(held_out), "loss": np.array(train)},
        levels={name: np.full(4, value) for name, value in levels.items()},
    )
    found = judged(WORKLOAD, parameters(prepared(tmp_path)), evidence)
    assert list(zip(found.outcome[:, -1], found.detail[:, -1], strict=True)) == [
        ("overfit", ""),
        ("plateau", ""),
        ("marginal", "current"),
        ("plateau", "moving"),
    ]
    assert (found.outcome[2, 2], found.detail[2, 2]) == ("degenerate_zero", "constant")


def test_the_content_of_a_text_is_part_of_a_training(tmp_path: Path) -> None:
    corpus = prepared(tmp_path)
    before = parameters(corpus)
    pinned = GPTParameters.pinned({"task": "text", "corpus": str(corpus)})
    assert pinned == {"corpus": str(corpus), "corpus_digest": read_text(corpus).digest, "n_words": before.n_words}
    # What a run records, compares on resume, and sends to its trainers.
    assert named_files(pinned) == (str(corpus),)
    prepared(tmp_path, RHYME[1:])
    assert parameters(corpus).corpus_digest != before.corpus_digest
    assert parameters(corpus) != before
    with refused("corpus_digest", UserError):
        GPTParameters.resolve(before.values())


@pytest.mark.parametrize(
    ("values", "subject"),
    [
        ({"n_words": 7}, "n_words"),
        ({"n_tokens": 1024}, "n_tokens"),
        ({"task": "bigram_table"}, "corpus"),
        ({"corpus": "missing.parquet"}, "corpus"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, values: dict[str, Value], subject: str) -> None:
    corpus = prepared(tmp_path, RHYME[:30])
    with refused(subject, UserError):
        parameters(corpus, **values)
