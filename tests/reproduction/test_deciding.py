"""`make claims` without a name: all claims that decide themselves, in one table."""

import shutil
from pathlib import Path

import pytest
from rich.console import Console

from attnsweep.reproduction.claims.__main__ import main
from attnsweep.reproduction.claims.deciding import (
    RECORD,
    STATED,
    Decided,
    announcement,
    claims_of,
    markdown,
    print_table,
    read_record,
    write_record,
)
from tests.across.documents import DOCUMENTS, ROOT
from tests.orchestrator.running.test_verifying import claim_file

FOUND = [
    Decided("a", 36, "supported", 32, "291 for", 11.25),
    Decided("b", 36, "refuted", 1_024, "23 against", 64.0),
    Decided("c", 36, "undecided", 64, "2.1 for", 5.0),
]


@pytest.mark.slow
@pytest.mark.usefixtures("no_mlflow")
def test_all_claims_of_the_folder_are_decided_and_a_refuted_one_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of them cannot be true: few trainings are solved."""
    monkeypatch.chdir(tmp_path)
    STATED.mkdir(parents=True)
    shutil.move(claim_file(tmp_path, 0.4), STATED / "few.yaml")
    monkeypatch.setattr("sys.argv", ["claims", "--seed", "3", "--record"])
    assert main() == 0
    said = capsys.readouterr()
    assert "1 claims, at most 24 trainings" in said.err
    assert "1 supported, 0 refuted, 0 undecided" in said.out
    (found,) = read_record(STATED / RECORD)
    assert (found.name, found.seed, found.verdict) == ("few", 3, "supported")
    assert found.cpu_seconds > 0
    text = (STATED / "few.yaml").read_text().replace(" < ", " > ")
    (STATED / "many.yaml").write_text(text.replace("few", "many").replace("large) > 0.4", "large) < 0.4"))
    monkeypatch.setattr("sys.argv", ["claims", "--seed", "3"])
    assert main() == 1
    said = capsys.readouterr()
    assert "2 claims, at most 48 trainings; 1 of them took 0 CPU minutes" in said.err
    assert "1 supported, 1 refuted, 0 undecided" in said.out


def test_a_budget_caps_each_claim_and_its_file_keeps_its_seed(tmp_path: Path) -> None:
    claim_file(tmp_path, 0.4, budget=100)
    assert [(each.budget, each.seed) for each in claims_of(tmp_path, None, 24)] == [(24, 7)]
    assert [(each.budget, each.seed) for each in claims_of(tmp_path, 1, 1_000)] == [(100, 1)]
    # Less than a batch of each group would be no budget.
    assert claims_of(tmp_path, None, 2)[0].budget == 8


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_record(tmp_path / RECORD, FOUND)
    assert read_record(tmp_path / RECORD) == FOUND
    assert read_record(tmp_path / "none.toml") == []
    claim = claims_of(ROOT / STATED, None, None)[:1]
    assert announcement(claim, [Decided(claim[0].name, 36, "supported", 1, "", 120.0)]).endswith(
        "1 of them took 2 CPU minutes when they were recorded"
    )


def test_the_table_has_a_row_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(FOUND, Console())
    said = capsys.readouterr().out
    assert [line.split() for line in said.splitlines()[1:3]] == [
        ["a", "supported", "32", "291", "for", "11"],
        ["b", "refuted", "1,024", "23", "against", "64"],
    ]
    assert "1 supported, 1 refuted, 1 undecided" in said


def test_the_page_has_the_verdict_of_every_claim_that_ships() -> None:
    claims, found = claims_of(ROOT / STATED, None, None), read_record(ROOT / STATED / RECORD)
    assert [each.name for each in found] == [claim.name for claim in claims]
    assert {(claim.name, claim.seed) for claim in claims} == {(each.name, each.seed) for each in found}
    assert markdown(claims, found) in DOCUMENTS["verify.md"]
