"""What axes of figures show: powers of ten, and a title that nothing stands in."""

import pytest
from matplotlib.figure import Figure

from attnsweep.orchestrator.analysis.figures import scale_logarithmic, scale_steps, title_panel


def _labels(axis: object) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels() if label.get_text()]  # type: ignore[attr-defined]


def test_powers_of_ten_are_labelled_as_such() -> None:
    figure = Figure()
    panel = figure.subplots()
    scale_logarithmic(panel, "y", 1e-12, 1e3)
    panel.set_ylim(1e-4, 1e1)
    scale_steps(panel, [0, 1, 2, 4, 8, 100, 1000])
    figure.draw_without_rendering()
    assert {"10⁻⁴", "10⁻¹", "10⁰", "10¹"} <= set(_labels(panel.yaxis))
    assert _labels(panel.xaxis) == ["0", "10¹", "10²", "10³"]


@pytest.mark.parametrize("high", [1.0, 1e-7])
def test_a_title_stands_clear_of_a_power_above_the_axis(high: float) -> None:
    figure = Figure(figsize=(1.5, 2.0), layout="constrained")
    panel = figure.subplots()
    panel.plot([0, 1], [0, high])
    title_panel(panel, "a title as wide as its panel")
    figure.draw_without_rendering()
    power, title = panel.yaxis.get_offset_text(), panel.title.get_window_extent()
    assert bool(power.get_text()) == (high < 1)
    assert not (power.get_text() and title.overlaps(power.get_window_extent()))
