"""Parameters that do not fit are refused, and parameters that follow from others are filled in."""

import os
import shutil
from pathlib import Path

import pytest

from attnsweep.workloads.errors import SpecError, UserError
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.translation import TranslationParameters
from attnsweep.workloads.translation.data import studied_corpus
from tests.workloads.translation.small_translation import WORKLOAD, small, written_as_real_text


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n_heads": 3}, r"n_heads: got 3, expected a divisor of d_model=8; change n_heads or d_model"),
        ({"batch_size": 201}, r"batch_size: got 201, expected at most n_sentences=200; lower batch_size, or raise"),
        (
            {"layer_norm_convention": "outside_root", "layer_norm_eps": 0.0},
            r"layer_norm_eps: got 0.0, expected > 0 with .*, or set layer_norm_convention=inside_root",
        ),
        ({"window": -1}, r"window: got -1, expected .*>= 0"),
        ({"label_smoothing": 1.0}, r"label_smoothing: got 1.0"),
        ({"global_columns": "last"}, r"global_columns: got 'last', expected one of first, rarest"),
        ({"n_nouns": 0}, r"n_nouns: got 0"),
    ],
)
def test_what_does_not_fit_is_refused(values: dict[str, Value], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        small(**values)


def test_borders_are_accepted() -> None:
    assert small(batch_size=200).n_steps == 24
    assert small(layer_norm_eps=0.0).layer_norm_eps == 0.0
    assert small(window=0, num_pos=1000).num_pos == small(num_pos=1000).num_pos == 1000
    assert small(n_heads=8).n_heads == small().d_model


@pytest.mark.parametrize(
    ("values", "n_steps"),
    [
        ({"n_steps": 0}, 2 * 25),
        ({"n_steps": 0, "n_epochs": 3, "batch_size": 7}, 3 * 28),
        ({"n_steps": 7, "n_epochs": 3}, 7),
        ({"n_steps": 0, "n_sentences": None}, 2 * 625),
    ],
)
def test_steps_follow_epochs_where_they_are_not_given(values: dict[str, Value], n_steps: int) -> None:
    parameters = small(**values)
    assert parameters.n_steps == n_steps
    # The stored values are those trained with, and resolve to themselves.
    assert TranslationParameters.resolve(parameters.values()) == parameters


def test_probes_are_halvings_back_from_the_end() -> None:
    assert WORKLOAD.probe_steps(small(n_steps=1000, n_probes=5)) == (0, 125, 250, 500, 1000)
    assert WORKLOAD.probe_steps(small(n_steps=3, n_probes=32)) == (0, 1, 2, 3)
    assert WORKLOAD.probe_steps(small(n_steps=9, n_probes=2)) == (0, 9)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.parquet"
    written_as_real_text(studied_corpus(small()).corpus, path)
    return path


def test_a_file_fills_in_what_it_decides(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    parameters = small(corpus="corpus.parquet", n_sentences=None, n_steps=0)
    assert parameters.corpus == str(file)
    assert parameters.n_sentences == 200
    assert parameters.n_steps == 50
    assert parameters.corpus_digest == studied_corpus(parameters).corpus.digest
    assert studied_corpus(parameters).corpus.gold is None
    assert TranslationParameters.resolve(parameters.values()) == parameters
    assert len(studied_corpus(small(corpus=str(file), n_sentences=150)).train) == 150


def test_more_sentences_than_the_file_has(file: Path) -> None:
    with pytest.raises(
        SpecError, match=r"n_sentences: got 201, expected at most 200 sentences, .*corpus.parquet; lower n_"
    ):
        small(corpus=str(file), n_sentences=201)


def test_a_file_that_is_another_than_the_sweep_began_with(file: Path) -> None:
    began = small(corpus=str(file))
    shorter = file.parent / "other.parquet"
    written_as_real_text(studied_corpus(small(corpus_seed=1)).corpus, shorter)
    shutil.copyfile(shorter, file)
    os.utime(file, ns=(0, 1))
    with pytest.raises(SpecError, match=rf"corpus_digest: got '{began.corpus_digest}', expected .*begin another sweep"):
        TranslationParameters.resolve(began.values())


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UserError, match=r"corpus: got '.*nowhere.parquet', expected a prepared corpus; check the path"):
        small(corpus="nowhere.parquet")
