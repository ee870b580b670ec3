"""Parameters that do not fit are refused, and parameters that follow from others are filled in."""

import os
import shutil
from pathlib import Path

import pytest

from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.translation import TranslationParameters
from attnsweep.workloads.translation.data import studied_corpus
from tests.refusals import refused
from tests.workloads.translation.small_translation import small, written_as_real_text


@pytest.mark.parametrize(
    ("values", "subject"),
    [
        ({"n_heads": 3}, "n_heads"),
        ({"batch_size": 201}, "batch_size"),
        ({"layer_norm_convention": "outside_root", "layer_norm_eps": 0.0}, "layer_norm_eps"),
        ({"window": -1}, "window"),
        ({"label_smoothing": 1.0}, "label_smoothing"),
        ({"global_columns": "last"}, "global_columns"),
        ({"n_nouns": 0}, "n_nouns"),
    ],
)
def test_what_does_not_fit_is_refused(values: dict[str, Value], subject: str) -> None:
    with refused(subject, SpecError):
        small(**values)


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


def test_a_file_that_is_another_than_the_sweep_began_with(file: Path) -> None:
    began = small(corpus=str(file))
    shorter = file.parent / "other.parquet"
    written_as_real_text(studied_corpus(small(corpus_seed=1)).corpus, shorter)
    shutil.copyfile(shorter, file)
    os.utime(file, ns=(0, 1))
    with refused("corpus_digest", SpecError):
        TranslationParameters.resolve(began.values())
