"""Figures of a report show the numbers; `tests/end_to_end/test_report_in_browser.py` looks whether they can be read."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from attnsweep.orchestrator.report.charts import as_file
from attnsweep.orchestrator.report.figures import Section, draw_sweep
from attnsweep.orchestrator.report.sweep_report import SweepReport, read_sweep_report
from attnsweep.search_spaces import Categorical, Int
from attnsweep.workloads.vocabulary import OUTCOMES
from tests.orchestrator.head_rows import head_rows, sweep_with_heads
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows
from tests.present import present

ENDS = ["solved", "marginal", "degenerate_zero", "plateau", "runaway", "diverged", "failed"]
TIMELINES = {(0, 0): "..ppp", (0, 1): ".sss.", (1, 0): "rr...", (1, 1): "....."}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[SweepReport, SweepReport]:
    """On the same trainings, without curves and with heads, and the other way round."""
    rng = np.random.default_rng(0)
    trials = [
        trial_rows(
            trial,
            rng.choice(ENDS, 4).tolist(),
            param_init_sigma=float(10 ** rng.uniform(-4, 0)),
            param_learning_rate=float(10 ** rng.uniform(-3, -1)),
            level_zero=8.0,
            level_mean=7.9,
            loss_level=0.7,
        )
        for trial in range(40)
    ]
    heads = [row for rows in trials for each in rows for row in head_rows(each, TIMELINES)]
    home, spec = tmp_path_factory.mktemp("sweeps"), small_sweep("figures", trials=40)
    with_heads = sweep_with_heads(home / "heads", spec, trials, heads)
    return read_sweep_report(with_heads), read_sweep_report(sweep_on_disk(home / "curves", spec, *trials))


@pytest.fixture
def report(reports: tuple[SweepReport, SweepReport]) -> SweepReport:
    return reports[1]


def _drawn(report: SweepReport, section: Section) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(each.svg) for each in draw_sweep(report) if each.section == section]


def _titles(drawing: ElementTree.Element, tag: str) -> list[tuple[ElementTree.Element, str]]:
    return [(each, title) for each in drawing.iter(tag) if (title := each.findtext("title"))]


def test_each_figure_is_a_file_of_its_own_with_finite_numbers(reports: tuple[SweepReport, SweepReport]) -> None:
    pictures = [*draw_sweep(reports[0]), *draw_sweep(reports[1])]
    assert {each.section for each in pictures} == {"phase", "rates", "curves", "heads"}
    for each in pictures:
        root = ElementTree.fromstring(as_file(each.svg))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert not re.search(r'="[^"]*\b(nan|inf)\b', each.svg)


def test_cells_are_divided_between_their_outcomes(report: SweepReport) -> None:
    regions = present(report.regions)
    mosaic = _drawn(report, "phase")[-1]
    drawn = [(each, title) for each, title in _titles(mosaic, "rect") if each.attrib["fill"] != "#ffffffd0"]
    for cell in regions.cells:
        names = ", ".join(f"{name} {label}" for name, label in regions.labels(cell))
        mine = {
            each.attrib["fill"]: float(each.attrib["width"]) for each, title in drawn if title.startswith(f"{names}:")
        }
        shares = {OUTCOMES[name].colour: rate.share for name, rate in cell.outcomes.items() if rate.share}
        if shares:
            assert mine.keys() == shares.keys()
            widths = {colour: width / sum(mine.values()) for colour, width in mine.items()}
            assert widths == pytest.approx(shares, abs=0.01)


def test_learning_curves_name_the_levels_once(report: SweepReport) -> None:
    drawings = _drawn(report, "curves")
    assert len(drawings) == len(report.tables["curves"]) == 6
    names = {
        row["outcome"]: [text.text for text in each.iter("text")]
        for row, each in zip(report.tables["curves"], drawings, strict=True)
    }
    assert {"mean, zero", "solved"} <= set(names["solved"])  # Two levels as one: their labels would overlap.
    assert not {"mean, zero", "solved"} & set(names["diverged"])


@pytest.mark.slow
def test_choices_and_whole_numbers_are_places_not_a_continuum(tmp_path: Path) -> None:
    space = {
        "n_steps": 8,
        "n_categories": Int(low=2, high=5),
        "variant": Categorical(choices=("combined", "solution_1")),
    }
    trials = [
        trial_rows(
            at, ["solved", "marginal"], param_n_categories=2 + at % 4, param_variant=("combined", "solution_1")[at % 2]
        )
        for at in range(16)
    ]
    sweep = sweep_on_disk(tmp_path / "sweep", small_sweep("places", trials=16, space=space), *trials)
    report = read_sweep_report(sweep)
    assert report.diagram is None
    assert len(_drawn(report, "phase")) == 1
    labels = [{text.text for text in each.iter("text")} for each in _drawn(report, "rates")]
    assert {"2", "3", "4", "5"} <= labels[0]
    assert {"combined", "solution_1"} <= labels[1]
    first, second, _loss = present(report.trials)["axes"]
    assert first["whole"]
    assert second["choices"] == ["combined", "solution_1"]
