"""The page about many sweeps and claims: what it shows of each, and that it is safe and small."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from attnsweep.orchestrator import cli
from attnsweep.orchestrator.analysis.verdict import read_verdict
from attnsweep.orchestrator.report.atlas import read_atlas, write_atlas
from attnsweep.orchestrator.report.verdict_page import write_verdict
from attnsweep.orchestrator.storage.annotation import Annotation
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Categorical
from attnsweep.workloads.errors import UserError
from tests.orchestrator.report.report_html import Element, read_html
from tests.orchestrator.report.test_report_hostile import LONG, NASTY
from tests.orchestrator.small_sweep import commit, open_writer, small_sweep, sweep_on_disk, trial_rows
from tests.search_spaces.test_claim import claim


def claim_on_disk(path: Path, **changes: object) -> SweepDirectory:
    """A claim whose 16 trainings with a small start are plateaus, and with a large one solved."""
    one = claim(**changes)
    directory = SweepDirectory.create(path, one.sweep(), {}, annotation=Annotation(claim=one))
    groups = ((0, 0.001, "plateau"), (1, 1.0, "solved"))
    rows = [
        row
        for trial, sigma, outcome in groups
        for row in trial_rows(trial, [outcome] * 16, param_init_sigma=sigma, onset_step=4)
    ]
    with open_writer(directory) as writer:
        commit(writer, rows)
    return directory


@pytest.fixture
def sweeps(tmp_path: Path) -> Path:
    """A folder with a sweep that has a report, one of another workload, and a claim that has its page."""
    spec = small_sweep("first", description="which start?")
    sweep_on_disk(tmp_path / "sweeps" / "first", spec, trial_rows(0, ["marginal", "solved", "solved", "failed"]))
    (tmp_path / "sweeps" / "first" / "report").mkdir()
    (tmp_path / "sweeps" / "first" / "report" / "report.html").write_text("")
    other = small_sweep("other").but(workload="gone.py:Gone", space={"n_steps": Categorical((1, 2))})
    sweep_on_disk(tmp_path / "sweeps" / "deep" / "other", other, trial_rows(0, ["solved"]))
    directory = claim_on_disk(tmp_path / "sweeps" / "claims" / "c 1")
    assert directory.claim is not None
    write_verdict(directory, read_verdict(directory, directory.claim))
    return tmp_path / "sweeps"


def page_of(folder: Path, out: Path) -> Element:
    write_atlas(read_atlas([str(folder)], lambda _: None), out)
    return read_html(out.read_text())


def test_each_sweep_has_its_rates_and_each_claim_its_verdict(sweeps: Path, tmp_path: Path) -> None:
    page = page_of(sweeps, tmp_path / "atlas.html")
    first, *_ = [row for row in page.one("table", id="sweeps").rows() if row[0].startswith("first")]
    assert "which start?" in first[0]
    assert first[1] == "category_pairs"
    assert "init_sigma 0.0001 to 1" in first[2]
    assert "marginal" in first[5]
    (row,) = page.one("table", id="claims").rows()
    assert row[0] == "A small start is solved less often."
    assert "supported, 32 trainings" in row[1]
    assert "small 0.00 [0.00, 0.27] of 16; large 1.00 [0.73, 1.00] of 16" in row[2]
    assert row[3] == "a test"
    links = [each.attributes["href"] for each in page.all("a")]
    assert links == ["sweeps/claims/c%201/report/verdict.html", "sweeps/first/report/report.html"]


def test_the_page_runs_its_own_script_alone_and_loads_nothing(sweeps: Path, tmp_path: Path) -> None:
    page = page_of(sweeps, tmp_path / "atlas.html")
    (policy,) = [each for each in page.all("meta") if each.attributes.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'; img-src data:; script-src 'sha256-" in policy.attributes["content"]
    text = (tmp_path / "atlas.html").read_text()
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    assert str(tmp_path) not in text


def test_hostile_names_are_shown_as_they_are(tmp_path: Path) -> None:
    spec = small_sweep("hostile", description=NASTY + LONG)
    rows = trial_rows(0, ["solved"], outcome_detail=NASTY)
    directory = sweep_on_disk(tmp_path / "s" / "one", spec, rows)
    record = json.loads((tmp_path / "s" / "one" / "sweep.json").read_text())
    del record["sha256"]
    (tmp_path / "s" / "one" / "sweep.json").write_text(json.dumps(record | {"sweep": NASTY}))
    assert directory.sweep
    claim_on_disk(tmp_path / "s" / "two", claim=NASTY, source=LONG)
    page = page_of(tmp_path / "s", tmp_path / "atlas.html")
    assert len(page.all("script")) == 1
    assert not [each for each in page.all("td") if "onmouseover" in each.attributes]


def test_a_hundred_sweeps_take_less_than_a_megabyte(tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "s", small_sweep("first"), trial_rows(0, ["marginal", "solved", "plateau"]))
    (one,) = read_atlas([str(tmp_path)], lambda _: None)
    assert directory.sweep == one.directory.sweep
    write_atlas([one] * 100, tmp_path / "atlas.html")
    assert (tmp_path / "atlas.html").stat().st_size < 500_000


def atlas(*arguments: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli.app, ["atlas", *map(str, arguments)])
    return done.exit_code, done.stdout, str(done.exception or "")


def test_the_command_prints_the_path_or_what_the_page_shows(sweeps: Path, tmp_path: Path) -> None:
    out = tmp_path / "new.html"
    assert atlas(sweeps / "first", sweeps, "--out", out)[:2] == (0, f"{out}\n")
    code, said, _ = atlas(sweeps, "--json")
    found = json.loads(said)
    assert (code, [each["workload"] for each in found]) == (0, ["category_pairs", "category_pairs", "gone.py:Gone"])
    (decided,) = [each["claim"] for each in found if each["claim"] is not None]
    assert decided["verdict"] == "supported"


def test_a_place_without_a_sweep_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("")
    for given, said in (
        (["--out", tmp_path / "no" / "a.html", tmp_path], "does not exist"),
        ([tmp_path / "empty"], "a sweep directory, or a folder with sweep directories below it"),
        ([tmp_path / "missing"], "a folder that contains sweeps"),
        ([tmp_path / "empty" / "notes.txt"], "a folder that contains sweeps"),
    ):
        code, _, error = atlas(*given)
        assert (code != 0, said in error) == (True, True), error
    assert not Path("atlas.html").exists()


def test_a_sweep_that_has_just_begun_has_no_rates(tmp_path: Path) -> None:
    SweepDirectory.create(tmp_path / "s", small_sweep("begun"), {})
    ((row,),) = [page_of(tmp_path, tmp_path / "atlas.html").one("table", id="sweeps").rows()]
    assert row[3:] == ["00 trials", "-", ""]


def test_a_damaged_ledger_is_named(sweeps: Path) -> None:
    (fragment,) = (sweeps / "first" / "trainings").iterdir()
    os.truncate(fragment, 100)
    with pytest.raises(UserError, match=fragment.name):
        read_atlas([str(sweeps)], lambda _: None)


def test_sweeps_of_one_workload_stand_together(tmp_path: Path) -> None:
    for number, workload in enumerate(("gpt", "category_pairs", "gpt")):
        spec = small_sweep(f"{number}").but(workload=workload)
        SweepDirectory.create(tmp_path / f"{number}", spec, {})
    read = read_atlas([str(tmp_path)], lambda _: None)
    assert [sweep.workload for sweep in read] == ["category_pairs", "gpt", "gpt"]
