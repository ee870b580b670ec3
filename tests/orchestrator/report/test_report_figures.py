"""Figures of a report: they show the right numbers, no texts overlap, and none is cut off."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from attnsweep.orchestrator.analysis.figures import letters_on
from attnsweep.orchestrator.report.pictures import Picture, Section, draw_overview, draw_sweep
from attnsweep.orchestrator.report.sweep_report import SweepReport, read_sweep_report
from attnsweep.workloads.vocabulary import OUTCOMES
from tests.orchestrator.drawn import bands, bars, intervals, lines, texts, tick_labels, unreadable
from tests.orchestrator.head_rows import head_rows, sweep_with_heads
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows

ENDS = ["solved", "marginal", "degenerate_zero", "plateau", "runaway", "diverged", "failed"]
TIMELINES = {(0, 0): "..ppp", (0, 1): ".sss.", (1, 0): "rr...", (1, 1): "....."}


def _report(path: Path, n_trials: int, *, with_heads: bool = True) -> SweepReport:
    rng = np.random.default_rng(0)
    trials = [
        trial_rows(
            trial,
            rng.choice(ENDS, 4).tolist(),
            param_init_sigma=float(10 ** rng.uniform(-4, 0)),
            param_learning_rate=float(10 ** rng.uniform(-3, -1)),
            level_zero=8.0,
            level_mean=7.5,
            loss_level=0.7,
        )
        for trial in range(n_trials)
    ]
    spec = small_sweep(path.name, trials=n_trials)
    if not with_heads:
        return read_sweep_report(sweep_on_disk(path, spec, *trials))
    heads = [row for rows in trials for each in rows for row in head_rows(each, TIMELINES)]
    return read_sweep_report(sweep_with_heads(path, spec, trials, heads))


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> SweepReport:
    return _report(tmp_path_factory.mktemp("sweeps") / "heads", 40)


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> SweepReport:
    return _report(tmp_path_factory.mktemp("sweeps") / "curves", 40, with_heads=False)


@pytest.fixture(scope="module")
def of_heads(heads: SweepReport) -> list[Picture]:
    return list(draw_sweep(heads))


@pytest.fixture(scope="module")
def of_curves(curves: SweepReport) -> list[Picture]:
    """Of two reports on the same trainings, what the one with heads does not show."""
    return [each for each in draw_sweep(curves) if each.section == "curves"]


def _of(pictures: list[Picture], section: Section) -> list[Picture]:
    return [each for each in pictures if each.section == section]


@pytest.mark.slow
@pytest.mark.sample("one of each section")
@pytest.mark.parametrize("are_all", [False, True], ids=["one of each section", "all"])
def test_each_figure_can_be_read(
    are_all: bool, heads: SweepReport, of_heads: list[Picture], of_curves: list[Picture], tmp_path: Path
) -> None:
    few = _report(tmp_path / "few", 4)
    pictures = [*of_heads, *of_curves, *draw_sweep(few), draw_overview([heads, few])]
    by_section = {each.section: each for each in reversed(pictures)}
    assert by_section.keys() == {
        *("stuck", "phase", "by_outcome", "cells", "outcomes", "curves", "composition", "emergence", "sweeps")
    }
    looked_at = pictures if are_all else by_section.values()
    assert [(each.name, words) for each in looked_at if (words := unreadable(each.figure))] == []


@pytest.mark.slow
def test_outcomes_are_bars_with_their_numbers_beside(heads: SweepReport, of_heads: list[Picture]) -> None:
    [picture] = _of(of_heads, "outcomes")
    (panel,) = picture.figure.axes
    assert bars(panel) == [each.rate.share for each in heads.outcomes]
    bounds = [row[2:] for row in intervals(panel, "x")]
    assert bounds == [pytest.approx((each.rate.low, each.rate.high)) for each in heads.outcomes]
    assert tick_labels(panel, "y") == [each.outcome.replace("_", " ") for each in heads.outcomes]
    assert texts(panel) == [*(str(each.rate.k) for each in heads.outcomes), "trainings"]
    assert panel.get_xlabel() == "share of trainings"


def test_cells_show_shares_and_intervals(heads: SweepReport, of_heads: list[Picture]) -> None:
    assert heads.regions is not None
    _, stuck, solved = _of(of_heads, "cells")
    (panel,) = stuck.figure.axes
    known = [each for each in heads.regions.cells if each.asked.share is not None]
    assert texts(panel)[::2] == [f"{each.asked.share:.2f}" for each in known]
    assert texts(panel)[1::2] == [f"{each.asked.low:.2f}–{each.asked.high:.2f}" for each in known]
    patches = [each for each in panel.patches if isinstance(each, Rectangle)]
    assert len(patches) == len(heads.regions.cells) + 1
    faces = [
        face.get_facecolor() for face, each in zip(patches[:-1], heads.regions.cells, strict=True) if each in known
    ]
    assert [text.get_color() for text in panel.texts[::2]] == [letters_on(face) for face in faces]
    assert heads.regions.best is not None
    assert patches[-1].get_xy() == pytest.approx([place - 0.47 for place in heads.regions.best.place])
    first = heads.regions.cells[0]
    assert f"stuck {first.asked.share:.2f} [" in stuck.hover["cell-stuck-0-0"]
    assert texts(solved.figure.axes[0])[0] == f"{first.solved.share:.2f}"
    # A colour that means bad in one figure must not mean good in the other.
    of_solved = [patch.get_facecolor() for patch in solved.figure.axes[0].patches[:-1]]
    for face, each in zip(of_solved, heads.regions.cells, strict=True):
        if each.solved.share is not None:
            assert to_hex(face) == to_hex(colormaps["Greens"](each.solved.share))


@pytest.mark.slow
def test_learning_curves_show_median_quartiles_and_levels(curves: SweepReport, of_curves: list[Picture]) -> None:
    drawn = _of(of_curves, "curves")
    assert len(drawn) == len(curves.curves) == 6
    for picture, curve in zip(drawn, curves.curves, strict=True):
        (panel,) = picture.figure.axes
        median = panel.get_lines()[0]
        assert lines(panel)[0] == [[point.step, point.median] for point in curve.points]
        assert median.get_color() == OUTCOMES[curve.outcome].colour
        assert bands(panel) == [{(point.step, end) for point in curve.points for end in (point.low, point.high)}]
        name = curve.outcome.replace("_", " ")
        assert panel.get_title() == f"{name}, {curve.n_trainings} trainings"
        bottom, top = panel.get_ylim()
        seen = [level for level in curves.levels if bottom <= level.median <= top]
        if curve.outcome != "diverged":
            assert sorted(line[0][1] for line in lines(panel)[1:]) == sorted(level.median for level in seen)
            assert set(texts(panel)) == {level.name for level in seen}
