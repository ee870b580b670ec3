"""The ledgers of docs/ledgers: each opens, and the documents' numbers are what they say."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from attnsweep.orchestrator.ledger.query import query_all
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.verification import verify
from attnsweep.orchestrator.running.session import run_sweep
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.reproduction.claims.__main__ import measured_again
from attnsweep.reproduction.claims.claim import load_claims, load_counted, verdicts
from attnsweep.reproduction.claims.sources import Run, measure_ledger
from attnsweep.reproduction.ledgers import publish
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.translation.data import studied_corpus
from tests.across.documents import DOCUMENTS, ROOT
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows
from tests.reproduction.pages import counted_numbers, flat, flaws, prints
from tests.workloads.translation.small_translation import small, written_as_real_text

FOLDER = ROOT / "docs" / "ledgers"
LEDGERS = sorted(path for path in FOLDER.iterdir() if path.is_dir())
MOST_BYTES = 20e6
ALL = load_claims(ROOT / "docs" / "claims")
CLAIMS = [each for each in ALL if each.group.ledger]
COUNTED = {page: counted for page, counted in load_counted(ROOT / "docs" / "claims").items() if counted}


def test_together_they_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < MOST_BYTES


@pytest.mark.parametrize("path", LEDGERS, ids=lambda path: path.name)
def test_a_ledger_opens_and_is_listed(path: Path) -> None:
    sweep = SweepDirectory.open(path)
    assert sweep.finished
    assert verify(sweep.place, sweep.spec_sha256) == []
    with Ledger(path).reading() as connection:
        [(n,)] = connection.execute("select count(*) from trainings where outcome != 'failed'").fetchall()
    assert n >= sweep.spec.trials
    assert f"| `{path.name}` | `attnsweep run {sweep.spec.name}" in (FOLDER / "README.md").read_text()
    assert " /" not in sweep.provenance["command"]


@pytest.mark.slow
@pytest.mark.sample("chiang-parity")
@pytest.mark.parametrize("group", sorted({each.group.name for each in CLAIMS}))
def test_numbers_from_a_ledger_are_those_of_the_page(group: str, tmp_path: Path) -> None:
    stated = [each for each in CLAIMS if each.group.name == group]
    sweep = SweepDirectory.open(FOLDER / stated[0].group.ledger)
    found = measure_ledger(stated[0].group.source, sweep, tmp_path)
    twins = {each.claim.twin for each in stated}  # Those on the page's second seed.
    for each in stated:
        if each.claim.row in twins:
            continue
        value, low, high = found[each.claim.row]
        recomputed = each.claim.model_copy(update={"value": value, "low": low, "high": high})
        assert list(flaws(recomputed, flat(DOCUMENTS[each.page]))) == [], each.name


def test_every_counted_row_is_compared() -> None:
    written = sum(path.read_text().count("[[counted]]") for path in (ROOT / "docs" / "claims").glob("*.toml"))
    assert sum(map(len, COUNTED.values())) == written > 0


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(COUNTED))
def test_counted_numbers_of_a_page_are_those_of_the_ledgers(page: str) -> None:
    for each in COUNTED[page]:
        printed = counted_numbers(each.sentence, flat(DOCUMENTS[page]))
        [row] = query_all([Ledger(FOLDER / name) for name in each.ledgers], each.query).to_pylist()
        says = f"{each.sentence!r} has {printed}, and the ledger {list(row.values())}"
        assert len(printed) == len(row) == each.sentence.count("{}"), says
        assert all(map(prints, row.values(), printed)), says


@pytest.mark.slow
def test_claims_are_compared_with_a_sweep_that_has_run(tmp_path: Path) -> None:
    chosen = [each for each in CLAIMS if each.group.name == "readme"]
    run = Run(1, tmp_path, Console(quiet=True))
    found = verdicts(measured_again(chosen, run, FOLDER / "quickstart"))
    assert [(each.stated, each.agrees, round(each.p, 1)) for each in found] == [(each, True, 1.0) for each in chosen]
    assert measured_again(chosen, replace(run, seed=0), FOLDER / "quickstart") == []  # The seed of the page itself.
    with pytest.raises(UserError, match="expected a group of claims that a sweep measures"):
        measured_again([each for each in ALL if each.group.name == "valley"], run, FOLDER / "quickstart")


def test_a_published_sweep_has_the_same_rows_and_no_journal(tmp_path: Path) -> None:
    made = sweep_on_disk(tmp_path / "made", small_sweep("made", replicates=2), trial_rows(0, ["solved", "plateau"]))
    made.record_run(finished=True, seconds=1.0)
    publish(tmp_path / "made", tmp_path / "copy", ends_only=False)
    for table in ("trainings", "curves"):
        assert rows(tmp_path / "copy", table) == rows(tmp_path / "made", table)
    assert SweepDirectory.open(tmp_path / "copy").spec == made.spec
    assert {path.name for path in (tmp_path / "copy").iterdir()} <= {
        "sweep.json", "course.json", "trainings", "curves", "heads"
    }  # fmt: skip
    publish(tmp_path / "made", tmp_path / "ends", ends_only=True)
    curves, ends = rows(tmp_path / "made", "curves"), rows(tmp_path / "ends", "curves")
    last = {(row["training_id"], row["metric"]): row for row in sorted(curves, key=lambda row: row["step"])}
    assert ends == sorted(last.values(), key=str)
    assert len(ends) < len(curves)


def test_of_the_heads_the_last_probe_can_be_kept_alone(tmp_path: Path) -> None:
    publish(FOLDER / "positional_dropout", tmp_path / "copy", ends_only=True, last_heads=True)
    heads, kept = rows(FOLDER / "positional_dropout", "heads"), rows(tmp_path / "copy", "heads")
    assert kept == [row for row in heads if row["step"] == max(each["step"] for each in heads)]
    assert 0 < len(kept) < len(heads)


def test_a_sweep_from_before_a_column_is_published_with_nulls(tmp_path: Path) -> None:
    made = sweep_on_disk(tmp_path / "made", small_sweep("made"), trial_rows(0, ["solved"]))
    made.record_run(finished=True, seconds=1.0)
    for path in (tmp_path / "made" / "trainings").glob("*.parquet"):
        table = pq.ParquetFile(path).read()
        pq.write_table(table.drop_columns(["pruned_step"]).replace_schema_metadata(table.schema.metadata), path)
    publish(tmp_path / "made", tmp_path / "copy", ends_only=False)
    assert [row["pruned_step"] for row in rows(tmp_path / "copy", "trainings")] == [None]


@pytest.mark.slow
@pytest.mark.usefixtures("no_mlflow")
def test_of_a_corpus_a_published_sweep_names_the_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has the ledger has other folders."""
    made, copy = tmp_path / "made", tmp_path / "copy"
    corpus = written_as_real_text(studied_corpus(small()).corpus, tmp_path / "pairs.parquet")
    least: dict[str, Scalar] = {
        "corpus": corpus,
        "d_model": 8,
        "n_heads": 1,
        "n_steps": 2,
        "n_probes": 2,
        "head_sentences": 0,
        "learning_rate": 3e-3,
        "dropout": 0.0,
    }
    spec = load_sweep("positional_heads").fix(least)
    monkeypatch.setattr("sys.argv", ["attnsweep", "run", "--set", f"corpus={corpus}"])
    run_sweep(spec.but(trials=1, replicates=2), made, Resources(local=True), Console(quiet=True))
    publish(made, copy, ends_only=True)
    for row in rows(copy, "trainings"):
        assert (row["param_corpus"], row["variant"]) == ("pairs.parquet", "pairs.parquet")
    sweep = SweepDirectory.open(copy)
    assert sweep.spec.fixed()["corpus"] == "pairs.parquet"
    assert verify(sweep.place, sweep.spec_sha256) == []
    assert str(tmp_path) not in (copy / "sweep.json").read_text()


def rows(path: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = getattr(Ledger(path), table)().to_pylist()
    return sorted(found, key=str)


def test_the_first_trials_of_an_interrupted_sweep_are_a_smaller_sweep(tmp_path: Path) -> None:
    spec = small_sweep("made", replicates=2).but(sampler="random", trials=3)
    ended = [row for trial in range(2) for row in trial_rows(trial, ["solved", "plateau"])]
    sweep_on_disk(tmp_path / "made", spec, [*ended, *trial_rows(2, ["solved"])])
    publish(tmp_path / "made", tmp_path / "copy", ends_only=False, trials=2)
    copy = SweepDirectory.open(tmp_path / "copy")
    assert (copy.spec, copy.finished) == (spec.but(trials=2), True)
    assert verify(copy.place, copy.spec_sha256) == []
    assert [row["trial"] for row in rows(tmp_path / "copy", "trainings")] == [0, 0, 1, 1]
    for interrupted, trials in ((spec, 3), (spec.but(sampler="tpe"), 2)):
        path = tmp_path / f"{interrupted.sampler}-{trials}"
        sweep_on_disk(path, interrupted, ended)
        with pytest.raises(UserError, match="expected a finished sweep"):
            publish(path, tmp_path / "refused", ends_only=False, trials=trials)


def test_an_unfinished_sweep_is_not_published(tmp_path: Path) -> None:
    sweep_on_disk(tmp_path / "made", small_sweep("made"), trial_rows(0, ["solved"]))
    with pytest.raises(UserError, match="expected a finished sweep"):
        publish(tmp_path / "made", tmp_path / "copy", ends_only=False)
    assert not (tmp_path / "copy").exists()
