"""Sweeps of translators: a user's own text from file to ledger, and the table on lengths."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from attnsweep.orchestrator.ledger.query import query_all
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.session import resume_sweep, run_sweep
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces import Categorical, Sweep
from attnsweep.search_spaces.dimensions import Dimension
from attnsweep.workloads.errors import SpecError, UserError
from attnsweep.workloads.translation.grammar import Lexicon, LexiconSizes, sentence_pair
from tests.orchestrator.commands import command
from tests.refusals import refused

QUIET = Console(quiet=True)
SMALL = {"n_heads": 2, "d_model": 8, "d_ffn": 8, "n_epochs": 1, "n_probes": 3, "head_sentences": 20}


@pytest.fixture(scope="module", autouse=True)
def _home(no_mlflow: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    del no_mlflow
    with pytest.MonkeyPatch.context() as environment:
        environment.chdir(tmp_path_factory.mktemp("home"))
        yield


def _prepare(name: str, n_pairs: int) -> None:
    """A TSV in the working directory, and the corpus file that `attnsweep prepare-corpus` makes of it."""
    lexicon = Lexicon(LexiconSizes())
    pairs = [sentence_pair(lexicon, seed=1, number=number) for number in range(n_pairs)]
    lines = ["english\titalian", *(f"{' '.join(pair.source)}\t{' '.join(pair.target)}" for pair in pairs)]
    Path(f"{name}.tsv").write_text("\n".join(lines) + "\n")
    assert command("prepare-corpus", f"{name}.tsv", "--out", f"{name}.parquet").code == 0


@pytest.mark.scale
def test_a_text_of_ones_own_from_file_to_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _prepare("mine", 200)
    space: dict[str, Dimension] = {
        **SMALL,
        "corpus": "mine.parquet",
        "layer_norm_eps": Categorical(choices=(1e-6, 1e-2)),
    }
    spec = Sweep(name="mine", workload="translation", space=space, sampler="grid", trials=2, replicates=2)
    directory = run_sweep(spec, tmp_path / "sweep", Resources(local=True), QUIET).directory
    ledger = Ledger(directory.place)
    trainings = ledger.trainings().to_pylist()
    assert len(trainings) == 4
    for row in trainings:
        assert row["error"] is None
        assert row["variant"] == row["param_corpus"] == str(Path("mine.parquet").absolute())
        assert row["loss_level"] is row["level_grammar"] is None
        assert 0 < row["level_bigram"] < row["level_unigram"] < row["level_uniform"]
    bleu = query_all(
        [ledger], "select metric, count(*) n, max(value) most from curves where metric like 'bleu%' group by 1"
    )
    assert {row["metric"]: row["n"] for row in bleu.to_pylist()} == dict.fromkeys(
        ("bleu_all", "bleu_short", "bleu_long"), 4
    )
    heads = query_all(
        [ledger], "select layer, score_syntactic_gain, score_alignment, score_positional_share from heads"
    )
    assert heads.num_rows == 4 * 3 * 3 * 2
    assert heads["score_syntactic_gain"].null_count == heads["score_alignment"].null_count == heads.num_rows
    assert heads["score_positional_share"].null_count == 0

    # The file has changed: continuing would train some rows on one text and some on another.
    _prepare("other", 150)
    shutil.copy("other.parquet", "mine.parquet")
    with refused("corpus_digest", SpecError):
        resume_sweep(directory.place, Resources(local=True), QUIET)
    Path("mine.parquet").unlink()
    with refused("corpus", UserError):
        resume_sweep(directory.place, Resources(local=True), QUIET)
    assert Ledger(directory.place).trainings().num_rows == 4
