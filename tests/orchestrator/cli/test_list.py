"""`attnsweep list`: all sweeps below a folder, with what the user wants to remember of them."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from attnsweep import Sweep
from attnsweep.orchestrator.cli import app
from attnsweep.orchestrator.cli.ending import telling_faults
from attnsweep.orchestrator.cli.screen.listing import print_list
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.annotation import Annotation, parse_tags
from attnsweep.orchestrator.storage.errors import SweepError
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.errors import UserError
from tests.orchestrator.small_sweep import small_sweep
from tests.orchestrator.trained_sweep import trained_sweep


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A folder with one sweep that has no rows yet."""
    annotation = Annotation("tries epsilon", {"paper": "figure-4"})
    SweepDirectory.create(tmp_path / "sweeps" / "deep" / "begun", small_sweep("small"), {}, annotation=annotation)
    return tmp_path / "sweeps"


def listed(*places: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    print_list([str(place) for place in places], as_json=True)
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_a_sweep_is_found_below_a_folder(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (one,) = listed(begun, capsys=capsys)
    place = begun / "deep" / "begun"
    assert (one["place"], one["state"], one["n_trainings"]) == (str(place), "not finished", 0)
    assert (one["note"], one["tags"]) == ("tries epsilon", {"paper": "figure-4"})
    assert one["n_bytes"] == sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    assert listed(place, capsys=capsys) == [one]


@pytest.mark.slow
def test_the_rates_are_those_of_the_ledger(
    begun: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    directory = trained_sweep(begun / "trained", small_sweep("small"))
    trained, _ = listed(begun, capsys=capsys)  # The newest first.
    stuck = Ledger(directory.place).trainings(columns=["stuck"])["stuck"].to_pylist()
    assert (trained["state"], trained["n_trainings"]) == ("finished", len(stuck))
    assert trained["stuck"]["share"] == pytest.approx(sum(stuck) / len(stuck))  # type: ignore[index]
    print_list([str(begun)], as_json=False)
    text = " ".join(capsys.readouterr().out.split())
    assert "not finished 0 - -" in text
    assert "paper=figure-4; tries epsilon" in text


def test_a_damaged_sweep_is_listed_with_the_reason(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (begun / "deep" / "begun" / "sweep.json").write_text("{")
    (one,) = listed(begun, capsys=capsys)
    assert str(one["state"]).startswith("damaged: ")


@pytest.mark.slow
def test_a_sweep_whose_rows_are_damaged_is_listed_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained_sweep(tmp_path / "trained", small_sweep("small"))
    [rows] = (tmp_path / "trained" / "trainings").iterdir()
    rows.write_bytes(rows.read_bytes()[:500])
    (one,) = listed(tmp_path, capsys=capsys)
    assert str(one["state"]).startswith("damaged: ")


def test_the_copy_of_a_record_in_mlflow_is_no_sweep(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = begun / "mlflow-artifacts" / "1" / ("0" * 31 + "f") / "artifacts"
    copy.mkdir(parents=True)
    shutil.copy(begun / "deep" / "begun" / "sweep.json", copy)
    assert [one["place"] for one in listed(begun, capsys=capsys)] == [str(begun / "deep" / "begun")]


def test_a_path_is_never_cut(begun: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    print_list([str(begun)], as_json=False)
    assert f"{begun}/deep/begun " in capsys.readouterr().out


def test_there_is_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected a folder that contains sweeps"):
        print_list([str(tmp_path / "none")], as_json=False)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="expected a folder that contains sweeps"):
        print_list([str(tmp_path / "file")], as_json=False)


def test_a_folder_without_sweeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    print_list([str(tmp_path)], as_json=False)
    assert capsys.readouterr().out == "no sweep there\n"


@pytest.mark.parametrize("text", ["paper", "a=1", "mlflow.user=me", "attnsweep.kind=sweep", "a b=1", "=1"])
def test_a_tag_that_cannot_be(text: str) -> None:
    with pytest.raises(UserError, match="--tag"):
        Annotation(tags=parse_tags(["a=0", text]))


def test_a_note_that_is_too_long() -> None:
    with pytest.raises(UserError, match=r"--note: .*expected a text of at most 5000 characters"):
        Annotation("x" * 5001)


def test_a_record_without_remarks_is_as_before(tmp_path: Path) -> None:
    SweepDirectory.create(tmp_path / "s", Sweep(name="s", workload="category_pairs", space={}, trials=1), {})
    assert not {"note", "tags"} & json.loads((tmp_path / "s" / "sweep.json").read_text()).keys()


@pytest.mark.scale
@pytest.mark.slow
def test_a_run_remembers_and_tells(tmp_path: Path, no_mlflow: None) -> None:
    spec, told = tmp_path / "sweep.yaml", tmp_path / "told.json"
    spec.write_text(small_sweep("small").to_yaml())
    arguments = ["run", str(spec), "--local", "--dir", str(tmp_path / "s"), "--note", "a", "--tag", "b=c=d", "--json"]
    done = CliRunner().invoke(app, [*arguments, "--no-report", "--on-finish", f"cat > {told}; exit 1"])
    assert done.exit_code == 0
    assert json.loads(told.read_text()) == json.loads(done.stdout.splitlines()[-1])
    assert "ended with exit code 1" in done.stderr
    found = SweepDirectory.open(tmp_path / "s")
    assert (found.note, dict(found.tags)) == ("a", {"b": "c=d"})


def test_a_fault_is_told_and_still_raised(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    with pytest.raises(SweepError), telling_faults(f"cat > {told}"):
        raise SweepError("the disk is full", "sweeps/a")
    assert json.loads(told.read_text()) == {"directory": "sweeps/a", "error": "the disk is full"}


def test_folders_that_cannot_be_read_are_passed_over_and_said(
    begun: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_others = [begun / "of another", begun / "of a third"]
    for each in of_others:
        each.mkdir()
    entries = os.scandir

    def refused(path: str) -> object:
        if Path(path) in of_others:
            raise PermissionError(13, "Permission denied", str(path))
        return entries(path)

    monkeypatch.setattr(os, "scandir", refused)
    print_list([str(begun)], as_json=True)
    said = capsys.readouterr()
    assert [one["place"] for one in json.loads(said.out)] == [str(begun / "deep" / "begun")]
    assert re.fullmatch(rf"not looked into: {begun}/of (another|a third) \(Permission denied\), nor 1 more\n", said.err)
    with pytest.raises(UserError, match=f"^{begun}/of another: got 'Permission denied', expected a file that can be"):
        print_list([str(begun / "of another")], as_json=True)
