"""The page of an empty sweep, a sweep of fixed values, several sweeps, one with heads; its file; its commands."""

import resource
import shutil
from pathlib import Path

import pytest

from attnsweep.orchestrator.report.page import make_report, write_report
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.errors import UserError
from tests.orchestrator.conftest import Command
from tests.orchestrator.head_rows import head_rows, sweep_with_heads
from tests.orchestrator.report.report_html import read_html
from tests.orchestrator.small_sweep import edit_record, open_writer, small_sweep, sweep_on_disk, trial_rows
from tests.refusals import refused


def _small(path: Path, name: str = "small") -> SweepDirectory:
    trials = [trial_rows(at, ["solved", "marginal"], param_init_sigma=10.0**-at / 2) for at in range(1, 3)]
    return sweep_on_disk(path, small_sweep(name, trials=2, replicates=2), *trials)


@pytest.mark.slow
def test_a_report_that_cannot_be_written_whole_leaves_nothing(tmp_path: Path) -> None:
    """As on a full disk, where the figures still fit and the page does not."""
    directory, out = _small(tmp_path / "sweep"), tmp_path / "report.html"
    write_report([directory.place], out)
    largest = max(each.stat().st_size for each in (tmp_path / "report_figures").iterdir())
    assert largest < out.stat().st_size
    out.unlink()
    shutil.rmtree(tmp_path / "report_figures")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_report([directory.place], out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [each.name for each in tmp_path.iterdir()] == ["sweep"]


@pytest.mark.slow
def test_the_command_writes_one_file_that_fetches_nothing(tmp_path: Path, command: Command) -> None:
    directory = _small(tmp_path / "sweep")
    out = directory.place / "report" / "report.html"
    assert command("report", str(directory.place))[:2] == (0, f"{out}\n")
    page = read_html(out.read_text())
    assert {each.attributes["href"] for each in page.all("link")} == {"data:,"}
    assert "url(http" not in out.read_text()
    assert "@import" not in out.read_text()
    names = {each.name for each in (out.parent / "report_figures").iterdir()}
    assert {"stuck_rate_init_sigma.svg", "cells.svg", "curves_solved.svg"} <= names
    assert not [each for each in out.parent.rglob("*") if each.name.startswith(".")]


@pytest.mark.slow
def test_a_sweep_without_trainings(tmp_path: Path) -> None:
    directory = SweepDirectory.create(tmp_path / "sweep", small_sweep("empty"), {})
    with open_writer(directory):
        pass
    page = read_html(make_report([directory.place]).text)
    assert "The ledger holds no training yet." in page.text
    assert page.all("svg") == []


@pytest.mark.slow
def test_a_sweep_that_varies_nothing_and_whose_trainings_fail(tmp_path: Path) -> None:
    spec = small_sweep("fixed", space={"n_steps": 8}, trials=1, replicates=2)
    failed = trial_rows(0, ["failed", "failed"], error="ValueError: no", eval_loss=None, train_seconds=None)
    place = sweep_on_disk(tmp_path / "sweep", spec, failed).place
    edit_record(place, lambda record: record.update(note="a first try"))
    page = read_html(make_report([place]).text)
    assert "a first try" in [each.text for each in page.all("dd")]
    assert page.one("p", id="stuck-rate-1").text == "-"
    assert page.all("table", class_="regions") == page.all("table", class_="by-parameter") == []
    assert "ValueError: no" in page.one("details", class_="failure").text


@pytest.mark.scale
@pytest.mark.slow
def test_several_sweeps(tmp_path: Path) -> None:
    paths = [_small(tmp_path / name, name).place for name in ("first", "second")]
    with refused("--out", UserError):
        write_report(paths, None)
    out = write_report(paths, tmp_path / "both.html")
    page = read_html(out.read_text())
    rows = page.one("table", id="sweeps").rows()
    assert [row[4] for row in rows] == ["4", "4"]
    assert [row[5][:4] for row in rows] == ["0.50", "0.50"]
    assert {each.attributes["id"] for each in page.all("main") if "id" in each.attributes} == {"sweep-1", "sweep-2"}
    assert (tmp_path / "both_figures" / "2_curves_solved.svg").exists()


@pytest.mark.slow
def test_a_sweep_with_heads(tmp_path: Path) -> None:
    trials = [trial_rows(at, ["solved", "marginal"], param_init_sigma=0.05) for at in range(2)]
    timelines = [{(0, 0): "..pp", (0, 1): "...."}, {(0, 0): ".sss", (0, 1): "...."}]
    heads = [
        row for rows in trials for each, seen in zip(rows, timelines, strict=True) for row in head_rows(each, seen)
    ]
    directory = sweep_with_heads(tmp_path / "sweep", small_sweep("heads"), trials, heads)
    made = make_report([directory.place])
    rows = {row[0]: row for row in read_html(made.text).one("table", class_="roles").rows()}
    assert rows["positional"][2:4] == ["4", "2"]
    assert rows["positional"][5] == "25.0%"
    assert rows["syntactic"][2:4] == ["4", "2"]
    assert "emergence_layer_0" in {each.name for each in made.pictures}
