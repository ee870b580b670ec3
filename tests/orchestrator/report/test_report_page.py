"""The page of an empty sweep, a sweep of fixed values, several sweeps, one with heads; its file; its commands."""

import math
import resource
import shlex
import shutil
from importlib import resources
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from typer.main import get_group

from attnsweep.orchestrator import cli
from attnsweep.orchestrator.ledger.query import query_all
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.report.page import make_report, write_report
from attnsweep.orchestrator.report.pictures import Section, draw_sweep
from attnsweep.orchestrator.report.sweep_report import read_sweep_report
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Categorical, Sequential
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.vocabulary import OUTCOMES
from tests.orchestrator.conftest import Command
from tests.orchestrator.drawn import legend
from tests.orchestrator.head_rows import head_rows, sweep_with_heads
from tests.orchestrator.report.report_html import read_html
from tests.orchestrator.small_sweep import commit, folder_of, open_writer, small_sweep, sweep_on_disk, trial_rows


def _small(path: Path, name: str = "small") -> SweepDirectory:
    trials = [trial_rows(at, ["solved", "marginal"], param_init_sigma=10.0**-at / 2) for at in range(1, 3)]
    return sweep_on_disk(path, small_sweep(name, trials=2, replicates=2), *trials)


def test_every_outcome_has_its_meaning_and_colour() -> None:
    assert len({each.colour for each in OUTCOMES.values()}) == len(OUTCOMES)


def test_each_section_of_pictures_has_a_place_on_the_page() -> None:
    templates = resources.files("attnsweep.orchestrator.report") / "templates"
    page = "".join(each.read_text() for each in templates.iterdir() if each.name.endswith(".j2"))
    of_one_sweep = [each for each in get_args(Section) if each != "sweeps"]
    assert [each for each in of_one_sweep if f'of("{each}")' not in page] == []


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
        with pytest.raises(UserError, match="File too large"):
            write_report([directory.place], out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [each.name for each in tmp_path.iterdir()] == ["sweep"]


@pytest.mark.slow
def test_the_command_writes_one_file_that_fetches_nothing(tmp_path: Path, command: Command) -> None:
    directory = _small(tmp_path / "sweep")
    out = folder_of(directory) / "report" / "report.html"
    assert command("report", str(directory.place))[:2] == (0, f"{out}\n")
    page = read_html(out.read_text())
    assert [each for each in page.all("img") if not each.attributes["src"].startswith("data:")] == []
    assert {each.attributes["href"] for each in page.all("link")} == {"data:,"}
    assert "url(http" not in out.read_text()
    assert "@import" not in out.read_text()
    files = {each.name for each in (out.parent / "report_figures").iterdir()}
    assert {
        "outcomes.png",
        "outcomes.svg",
        "stuck_rate_init_sigma.png",
        "cells_stuck.svg",
        "curves_solved.png",
    } <= files
    assert not [each for each in out.parent.rglob("*") if each.name.startswith(".")]


@pytest.mark.slow
def test_of_many_parameters_the_eight_that_matter_most_have_figures(tmp_path: Path) -> None:
    idle = ["batch_size", "flavour_weight", "layer_norm_eps", "n_categories", "n_positions", "n_steps"]
    idle += ["hidden_width", "qk_rank", "learning_rate"]
    space = {name: Categorical(choices=(2, 3)) for name in [*idle, "init_sigma"]}
    trials = []
    for at in range(8):
        parameters = dict.fromkeys((f"param_{name}" for name in idle), 2 + at // 2 % 2)
        outcome = "marginal" if at % 2 else "solved"
        trials.append(trial_rows(at, [outcome] * 2, param_init_sigma=2 + at % 2, **parameters))
    spec = small_sweep("many", trials=8, replicates=2, space=space)
    page, pictures = make_report([sweep_on_disk(tmp_path / "many", spec, *trials).place])
    drawn = [picture.name for picture in pictures if picture.section == "stuck"]
    assert len(drawn) == 8
    assert drawn[-1] == "stuck_rate_init_sigma"
    html = read_html(page)
    assert len(html.all("table", class_="by-parameter")) == 10


@pytest.mark.scale
@pytest.mark.slow
def test_the_commands_of_a_report_exist_and_its_queries_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = _small(tmp_path / "a sweep's")
    monkeypatch.chdir(tmp_path)
    page = read_html(make_report([directory.place])[0])
    commands = [shlex.split(each.text) for each in page.all("pre", class_="command")]
    assert [words[1] for words in commands][:2] == ["resume", "status"]
    for words in commands:
        assert words[0] == "attnsweep"
        assert words[1] in get_group(cli.app).commands
        assert words[2] == "a sweep's"
        if words[1] == "query":
            assert query_all([Ledger(Path(words[2]))], words[3]).num_rows > 0, words[3]


@pytest.mark.slow
def test_a_sweep_without_trainings(tmp_path: Path) -> None:
    directory = SweepDirectory.create(tmp_path / "sweep", small_sweep("empty"), {})
    with open_writer(directory):
        pass
    page = read_html(make_report([directory.place])[0])
    assert "The ledger holds no training yet." in page.text
    assert page.all("img") == []


@pytest.mark.slow
def test_a_sweep_that_varies_nothing_and_whose_trainings_fail(tmp_path: Path) -> None:
    spec = small_sweep("fixed", space={"n_steps": 8}, trials=1, replicates=2)
    failed = trial_rows(0, ["failed", "failed"], error="ValueError: no", eval_loss=None, train_seconds=None)
    page = read_html(make_report([sweep_on_disk(tmp_path / "sweep", spec, failed).place])[0])
    assert page.one("p", id="stuck-rate-1").text == "-"
    assert page.all("table", class_="regions") == page.all("table", class_="by-parameter") == []
    assert "ValueError: no" in page.one("details", class_="failure").text


@pytest.mark.scale
@pytest.mark.slow
def test_where_no_model_is_fitted_the_cells_stand_alone_and_the_page_says_why(tmp_path: Path) -> None:
    spec = small_sweep("choice", trials=8)
    spec = spec.but(space={**spec.space, "optimizer": Categorical(choices=("sgd", "adam"))})
    trials = [
        trial_rows(at, ["solved", ("solved", "marginal")[at % 2]], param_optimizer=("sgd", "adam")[at % 2],
                   param_init_sigma=0.05, param_learning_rate=(5e-3, 5e-2)[at // 4])
        for at in range(8)
    ]  # fmt: skip
    for name, rows, why in (
        ("words", trials, "No model: a model needs two parameters whose values are numbers."),
        ("solved", [trial_rows(0, ["solved"] * 4)], "No model: none of 4 trainings of 1 trials end stuck"),
    ):
        given = spec if name == "words" else small_sweep("one")
        text, pictures = make_report([sweep_on_disk(tmp_path / name, given, *rows).place])
        page = read_html(text)
        assert why in page.text
        assert len(page.all("table", class_="regions")) == 1
        assert page.all("table", class_="residuals") == []
        groups = {each.section for each in pictures}
        assert "cells" in groups
        assert "phase" not in groups


@pytest.mark.slow
def test_a_model_that_does_not_fit_is_said_before_its_figures_and_has_no_border(tmp_path: Path) -> None:
    """Nearly all trials are within a hundredth of the range, where they end in stripes: no knots are there."""
    draws = np.random.default_rng(0)
    trials = []
    for at in range(200):
        place = draws.uniform(-0.01, 0.01) if at > 7 else at / 3.5 - 1
        chance = 0.9 if math.floor(place / 0.005) % 2 else 0.1
        ends = ["marginal" if draws.random() < chance else "solved" for _ in range(8)]
        sigma = 10.0 ** draws.uniform(-4, 0)
        trials.append(trial_rows(at, ends, param_init_sigma=sigma, param_learning_rate=10.0 ** (place - 2)))
    spec = small_sweep("stripes", trials=200, replicates=8)
    text, pictures = make_report([sweep_on_disk(tmp_path / "stripes", spec, *trials).place])
    said = "Stuck rate: the surface does not fit, so no border is drawn from it ("
    page = read_html(text).text
    assert page.count("so no border is drawn from it (") == 3, "asked, and of both outcomes"
    assert page.index(said) < page.index("The two parameters that account for most of the spread")
    assert "the line on which half do" not in page
    (model, _) = (each.figure for each in pictures if each.section == "phase")
    assert legend(model) == ["trial"]


@pytest.mark.scale
@pytest.mark.slow
def test_trials_that_chose_how_many_they_needed_count_once_in_every_rate(tmp_path: Path) -> None:
    spec = small_sweep("by_need", trials=2, replicates=Sequential(width=0.3, at_most=16, batch=4))
    trials = [trial_rows(0, ["solved"] * 4), trial_rows(1, ["marginal"] * 12 + ["solved"] * 4)]
    page = read_html(make_report([sweep_on_disk(tmp_path / "sweep", spec, *trials).place])[0])
    assert page.one("p", id="stuck-rate-1").text.startswith("0.38 [")
    assert page.one("p", id="solved-rate-1").text.startswith("0.62 [")
    outcomes = {row[0].split()[0]: row[2][:4] for row in page.one("table", class_="outcomes").rows()}
    assert outcomes == {"solved": "0.62", "marginal": "0.38"}
    assert "a rate is the mean of the trials' shares, not k of n" in page.text


@pytest.mark.slow
def test_a_loss_near_the_largest_float_is_drawn(tmp_path: Path) -> None:
    directory = SweepDirectory.create(tmp_path / "sweep", small_sweep("diverged"), {})
    with open_writer(directory) as writer:
        commit(writer, trial_rows(0, ["diverged"] * 2), {0: [1.0, 1e300], 1: [1.0, 1e308]})
    (curves,) = [each for each in draw_sweep(read_sweep_report(directory)) if each.section == "curves"]
    assert "<svg" in curves.svg


@pytest.mark.scale
@pytest.mark.slow
def test_several_sweeps(tmp_path: Path) -> None:
    paths = [_small(tmp_path / name, name).place for name in ("first", "second")]
    with pytest.raises(UserError, match="--out: got None, expected a file name, because a report on several sweeps"):
        write_report(paths, None)
    out = write_report(paths, tmp_path / "both.html")
    page = read_html(out.read_text())
    rows = page.one("table", id="sweeps").rows()
    assert [row[4] for row in rows] == ["4", "4"]
    assert [row[5][:4] for row in rows] == ["0.50", "0.50"]
    assert {each.attributes["id"] for each in page.all("main") if "id" in each.attributes} == {"sweep-1", "sweep-2"}
    parts = [each.attributes for tag in ("g", "path", "clippath", "svg") for each in page.all(tag)]
    ids = [each["id"] for each in parts if "id" in each]
    assert len(ids) == len(set(ids)) > 0
    assert (tmp_path / "both_figures" / "stuck_rate_by_sweep.png").exists()
    assert (tmp_path / "both_figures" / "2_outcomes.svg").exists()


@pytest.mark.slow
def test_a_sweep_with_heads(tmp_path: Path) -> None:
    trials = [trial_rows(at, ["solved", "marginal"], param_init_sigma=0.05) for at in range(2)]
    timelines = [{(0, 0): "..pp", (0, 1): "...."}, {(0, 0): ".sss", (0, 1): "...."}]
    heads = [
        row for rows in trials for each, seen in zip(rows, timelines, strict=True) for row in head_rows(each, seen)
    ]
    directory = sweep_with_heads(tmp_path / "sweep", small_sweep("heads"), trials, heads)
    text, pictures = make_report([directory.place])
    rows = {row[0]: row for row in read_html(text).one("table", class_="roles").rows()}
    assert rows["positional"][2:4] == ["4", "2"]
    assert rows["positional"][5] == "25.0%"
    assert rows["syntactic"][2:4] == ["4", "2"]
    assert {"head_roles", "emergence_layer_0"} <= {each.name for each in pictures}


@pytest.mark.slow
def test_roles_have_one_share_of_heads_in_a_report(tmp_path: Path) -> None:
    """Intervals agree between table and figure, also with sequential replicates."""
    trials = [
        trial_rows(0, ["solved"] * 2, param_init_sigma=0.05),
        trial_rows(1, ["solved"] * 8, param_init_sigma=0.05),
    ]
    timelines = ({(0, 0): "...."}, {(0, 0): "..pp"})
    heads = [row for rows in trials for each in rows for row in head_rows(each, timelines[each["trial"]])]
    spec = small_sweep("heads", trials=2, replicates=Sequential(width=0.3, at_most=8, batch=2))
    directory = sweep_with_heads(tmp_path / "sweep", spec, trials, heads)
    report = read_sweep_report(directory)
    assert report.results.roles is not None
    (rate,) = [each for each in report.results.roles.rates if each.role == "positional"]
    (composition,) = [each for each in report.composition if each.role == "positional"]
    assert rate.head_share == composition.rate.share == 0.5


@pytest.mark.slow
def test_what_cannot_be_written_or_read_is_refused(tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("empty"))
    (tmp_path / "taken").write_text("")
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match=r"--out: got .*expected a file that can be written"):
        write_report([directory.place], tmp_path / "taken" / "report.html")
    with pytest.raises(UserError, match=r"DIR: got .*expected a sweep directory"):
        write_report([tmp_path / "none"], None)
    assert list((tmp_path / "none").iterdir()) == []
