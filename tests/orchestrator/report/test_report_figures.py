"""Every figure of a report can be read: no two words lie on each other, and none is cut off."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from orchestrator.report import pictures
from orchestrator.report.page import write_report
from tests.orchestrator.head_rows import head_rows, sweep_with_heads
from tests.orchestrator.small_sweep import small_sweep, trial_rows

ENDS = ["solved", "marginal", "degenerate_zero", "plateau", "runaway", "diverged", "failed"]
TIMELINES = {(0, 0): "..ppp", (0, 1): ".sss.", (1, 0): "rr...", (1, 1): "....."}


def _words(figure: Figure) -> list[tuple[str, Bbox]]:
    """What is written in a figure, and where; ticks beyond the ends of an axis are not drawn."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    beyond = {
        label
        for axes in figure.axes
        for place, (axis, ends) in enumerate(((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())))
        for label in axis.get_ticklabels(which="both")
        if not min(ends) <= label.get_position()[place] <= max(ends)
    }
    shown = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    boxes = [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in shown if text not in beyond]
    return [(word, box) for word, box in boxes if box.width > 0]


def _overlap(one: Bbox, other: Bbox) -> bool:
    """By more than a pixel, which letters do not fill."""
    return min(one.x1, other.x1) - max(one.x0, other.x0) > 1 and min(one.y1, other.y1) - max(one.y0, other.y0) > 1


@pytest.mark.slow
@pytest.mark.parametrize(("names", "n_trials"), [("a", 4), ("ab", 40)])
def test_words_do_not_overlap(names: str, n_trials: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    heads = [row for rows in trials for each in rows for row in head_rows(each, TIMELINES)]
    directories = [
        sweep_with_heads(tmp_path / name, small_sweep(name, trials=n_trials), trials, heads) for name in names
    ]
    drawn, as_png = [], pictures.as_png
    monkeypatch.setattr(pictures, "as_png", lambda figure: (drawn.append(figure), as_png(figure))[1])
    write_report([each.path for each in directories], tmp_path / "report.html")
    assert len(drawn) >= 10 * len(names)
    for figure in drawn:
        words = _words(figure)
        assert words
        over = [(a, b) for (a, one), (b, other) in itertools.combinations(words, 2) if _overlap(one, other)]
        assert over == []
        cut = [word for word, box in words if box.x0 < -1 or box.y0 < -1 or not _inside(box, figure)]
        assert cut == []


def _inside(box: Bbox, figure: Figure) -> bool:
    return box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1
