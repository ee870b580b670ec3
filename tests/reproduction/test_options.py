"""`attnsweep reproduce` with `--full` and `--corpus`, and Table 1 on a parallel text."""

import dataclasses
import gzip
import pkgutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from attnsweep.orchestrator.running.session import run_sweep
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.reproduction.catalog import REPRODUCTIONS
from attnsweep.reproduction.chiang import table1
from attnsweep.reproduction.chiang.table1 import paired_bootstrap
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.translation.writing import Written, bleu
from tests.orchestrator.commands import command

QUIET = Console(quiet=True)
SHARED_TEXT = Path(__file__).parents[3] / "shared/data/eng-vie.tsv.gz"


def test_an_option_chooses_what_is_run() -> None:
    by_name = {each.name: each for each in REPRODUCTIONS}
    for each in REPRODUCTIONS:
        for function in (each.full, each.of_corpus):
            assert not function or callable(pkgutil.resolve_name(function))
    figure = by_name["shin-fig2"]
    assert figure.chosen(full=False, corpus=None) is figure
    assert figure.chosen(full=True, corpus=None) == dataclasses.replace(figure, function=figure.full, sweep="")
    table = by_name["chiang-table1"].chosen(full=False, corpus="a.parquet")
    assert (table.function, table.corpus) == (table.of_corpus, "a.parquet")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shin-handmade", "--full"], "--full"),
        (["shin-fig2", "--corpus", "a"], "--corpus"),
        (["chiang-table1", "--corpus", "no.parquet"], "corpus"),
    ],
)
def test_an_option_that_cannot_be_followed_is_refused(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = command("reproduce", *arguments)
    assert refused.code == 2
    assert refused.err.startswith(f"attnsweep: {message}")
    assert list(tmp_path.iterdir()) == []


def test_the_paper_s_size_is_the_paper_s() -> None:
    ours, full = load_sweep("shin_flavours"), load_sweep("shin_flavours_full")
    size = {name: full.fixed()[name] for name in ("n_positions", "batch_size", "n_steps")}
    assert size == {"n_positions": 50, "batch_size": 1000, "n_steps": 50 * 20}
    assert full.fix({name: ours.fixed()[name] for name in size}).space == ours.space


def _translations(share_wrong: float, seed: int) -> Written:
    random = np.random.default_rng(seed)
    references = [[str(word) for word in np.random.default_rng(n).integers(30, size=5 + n % 8)] for n in range(60)]
    hypotheses = [["x" if random.random() < share_wrong else word for word in line] for line in references]
    return Written("long", *(tuple(" ".join(line) for line in lines) for lines in (hypotheses, references)))


def test_the_paired_bootstrap_tells_a_better_system_from_an_equal_one() -> None:
    good, bad, as_bad = (_translations(*each) for each in ((0.1, 0), (0.4, 1), (0.4, 2)))
    better, equal = paired_bootstrap(bad, good), paired_bootstrap(bad, as_bad)
    assert better.ours == pytest.approx(bleu(good) - bleu(bad))
    assert better.agrees
    assert not equal.agrees
    for row in (better, equal):
        assert isinstance(row.ours, float)
        assert row.low is not None
        assert row.high is not None
        assert row.low <= row.ours <= row.high


@pytest.mark.scale
@pytest.mark.slow
@pytest.mark.skipif(not SHARED_TEXT.exists(), reason=f"no parallel text at {SHARED_TEXT}")
@pytest.mark.usefixtures("no_mlflow")
def test_table_1_is_measured_on_a_parallel_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = gzip.decompress(SHARED_TEXT.read_bytes()).decode().splitlines()[:600]
    Path("text.tsv").write_text("\n".join(lines))
    assert command("prepare-corpus", "text.tsv", "--out", "text.parquet").code == 0
    small: dict[str, Scalar] = {
        "n_epochs": 1,
        "d_model": 16,
        "d_ffn": 16,
        "n_heads": 2,
        "eval_sentences": 16,
        "head_sentences": 0,
    }
    small |= {"corpus": "text.parquet", "test_sentences": 24}
    spec = load_sweep("translation_lengths").fix(small)
    sweep = run_sweep(spec.but(replicates=2), tmp_path / "sweep", Resources(local=True), QUIET).directory
    found = table1.compare_corpus(sweep, tmp_path, QUIET)
    assert found.rows[-1].name.endswith("paired bootstrap of two trainings")
    assert all(path.exists() for path in found.figures)
    assert "text.parquet" in found.notes[0]
