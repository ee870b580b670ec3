"""The first lines of a report, and what each outcome measured: no ending is hidden behind the stuck rate."""

from pathlib import Path

import pytest

from attnsweep.orchestrator.report.page import make_report
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Categorical, LossQuantile, Rate, StuckRate
from attnsweep.search_spaces.measured import Objective
from tests.orchestrator.report.report_html import Element, read_html
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows


def _page(directory: SweepDirectory) -> Element:
    return read_html(make_report([directory.place]).text)


def _told(page: Element, name: str) -> str:
    return " ".join(page.one("p", id=f"{name}-1").text.split())


def test_the_first_lines_name_each_outcome(tmp_path: Path) -> None:
    trials = [trial_rows(at, ["overfit", "overfit", "solved", "plateau"]) for at in range(2)]
    page = _page(sweep_on_disk(tmp_path / "sweep", small_sweep("ended", trials=2), *trials))
    assert _told(page, "stuck-rate").startswith("0.00 ")
    shares = {row[0]: row[2].split()[0] for row in page.one("table", class_="outcomes").rows()}
    assert shares == {"solved": "0.25", "plateau": "0.25", "overfit": "0.50"}


@pytest.mark.parametrize(
    ("objective", "first"),
    [
        (StuckRate(), "Stuck rate"),
        (Rate("solved"), "Share of solved"),
        (Rate("overfit"), "Share of overfit"),
        (LossQuantile(), "Objective: loss_quantile, to minimize"),
    ],
    ids=str,
)
def test_the_first_card_is_the_objective(objective: Objective, first: str, tmp_path: Path) -> None:
    spec = small_sweep("first", trials=2, replicates=2).but(objective=objective)
    page = _page(sweep_on_disk(tmp_path / "sweep", spec, *(trial_rows(at, ["solved", "overfit"]) for at in range(2))))
    assert page.one("section", class_="answer").all("h2")[0].text == first


def test_what_is_neither_solved_nor_stuck_has_a_line_of_its_own(tmp_path: Path) -> None:
    trial = trial_rows(0, ["plateau"] * 13 + ["solved"] * 11 + ["marginal"])
    page = _page(sweep_on_disk(tmp_path / "sweep", small_sweep("plateau", trials=1, replicates=25), trial))
    [told] = page.all("p", class_="neither")
    assert told.text.startswith("52% end as plateau: neither solved nor counted as stuck")


HALF, NOTHING = ["solved", "solved", "plateau", "plateau"], ["plateau"] * 4


@pytest.mark.parametrize(
    ("first", "second", "best"),
    [
        ([NOTHING] * 3, [HALF] * 2, "n_categories 8"),
        # Where only one region has two trials, there is nothing to choose among.
        ([HALF] * 3, [["solved"] * 4], "none"),
        ([NOTHING] * 2, [["marginal"] * 4] * 2, "none"),
    ],
    ids=["the one that solves", "one region of two trials", "nothing is solved"],
)
def test_the_best_region(first: list[list[str]], second: list[list[str]], best: str, tmp_path: Path) -> None:
    spec = small_sweep("cells", space={"n_steps": 8, "n_categories": Categorical(choices=(4, 8))})
    cells = [(4, trial) for trial in first] + [(8, trial) for trial in second]
    rows = [trial_rows(at, trial, param_n_categories=n) for at, (n, trial) in enumerate(cells)]
    page = _page(sweep_on_disk(tmp_path / "sweep", spec.but(trials=len(cells)), *rows))
    assert _told(page, "best-region") == best
