"""The section of a report on a few stuck trainings: which they are, and what it says about them."""

from pathlib import Path

import pytest

from attnsweep import Categorical
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.report.page import make_report
from attnsweep.orchestrator.report.retrained import STUCK_RULE, WhyPage, shown_map, stuck_rows
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from tests.orchestrator.conftest import Command
from tests.orchestrator.report.report_html import read_html
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows
from tests.orchestrator.trained_sweep import trained_sweep


def mixed(home: Path) -> SweepDirectory:
    ends = (
        (["marginal"] * 3, "mean"),
        (["runaway", "solved", "solved"], "valley"),
        (["degenerate_zero", "degenerate_zero", "plateau"], "zero"),
        (["marginal", "failed", "diverged"], "centred_shift"),
    )
    trials = [trial_rows(at, outcomes, outcome_detail=detail) for at, (outcomes, detail) in enumerate(ends)]
    return sweep_on_disk(home, small_sweep("mixed", trials=4, replicates=3), *trials)


def test_one_training_of_each_kind_stands_for_it_and_frequent_kinds_come_first(tmp_path: Path) -> None:
    directory = mixed(tmp_path / "sweep")
    with Ledger(directory.place).reading() as connection:
        chosen = stuck_rows(connection)
        assert chosen == stuck_rows(connection)
    assert [(row.outcome, row.detail, row.n) for row in chosen[:2]] == [
        ("marginal", "mean", 3),
        ("degenerate_zero", "zero", 2),
    ]
    assert len(chosen) == 3
    assert chosen[0].name in {"0/0", "0/1", "0/2"}
    assert chosen[1].name in {"2/0", "2/1"}


@pytest.mark.scale
@pytest.mark.slow
def test_without_pages_the_report_has_the_rule_and_the_commands(tmp_path: Path) -> None:
    directory = mixed(tmp_path / "sweep")
    page = read_html(make_report([directory.place])[0])
    assert STUCK_RULE in page.text
    commands = [each.text for each in page.all("pre", class_="command") if each.text.startswith("attnsweep why ")]
    assert len(commands) == 3
    assert all(each.startswith("attnsweep why sweep ") for each in commands)


@pytest.mark.scale
@pytest.mark.slow
def test_a_report_asked_why_explains_its_stuck_rows_in_one_file(tmp_path: Path, command: Command) -> None:
    spec = small_sweep("small", sampler="grid", trials=2, replicates=1)
    fixed = {"n_steps": 20, "n_categories": 3, "n_positions": 4, "learning_rate": 0.01}
    spec = spec.but(space={**fixed, "init_sigma": Categorical((1e-4, 1e-5))})
    directory = trained_sweep(tmp_path / "sweep", spec)
    out = tmp_path / "report.html"
    code, _, error = command("report", str(directory.place), "--why", "--out", str(out))
    assert code == 0, error
    page = read_html(out.read_text())
    shown = page.one("div", class_="why")
    assert "degenerate_zero (zero)" in shown.one("h3").text
    assert "starved" in shown.text
    assert "-tr(v (I - P)) U" in shown.one("table", class_="words-of-gradients").text
    assert len(shown.all("svg")) == 2
    assert shown.one("pre", class_="replay").text.startswith("attnsweep replay sweep ")
    assert {script.attributes.get("type") for script in page.all("script")} == {"application/json", "module"}


def test_a_map_is_at_most_forty_cells_wide_and_relative_to_its_largest() -> None:
    shown = shown_map("attention", [[float(x == y) for x in range(80)] for y in range(80)])
    columns, rows = shown.size
    assert columns == rows <= 40
    assert shown.cells[0][0] == max(max(row) for row in shown.cells) == 1.0
    assert shown.cells[0][-1] == 0.0
    ((opacity, path), *_) = reversed(shown.paths())
    assert opacity == 1.0
    assert path.startswith("M0 0h1v1h-1z")


def test_a_curve_that_falls_is_drawn_falling() -> None:
    page = WhyPage(
        name="0/0", headline="", facts=(), columns=(), rows=(), notes=(), maps=(),
        curve=((0, 1.0), (10, 0.1), (20, 0.01)), replay="",
    )  # fmt: skip
    assert page.path(200, 80) == "M0.0,0.0 100.0,40.0 200.0,80.0"
    assert page.ends == "1 at step 0 to 0.01 at 20"
