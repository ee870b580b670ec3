"""Axes, titles, letters and numbers in figures and tables can be read."""

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.typing import ColorType

from attnsweep.orchestrator.analysis.figures import letters_on, scale_logarithmic, scale_steps, title_panel
from attnsweep.orchestrator.analysis.labels import speed_label


def _luminance(colour: ColorType) -> float:
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in to_rgb(colour)]
    return sum(weight * each for weight, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("name", ["cividis_r", "PuOr_r"])
def test_letters_stand_out_on_every_colour_of_a_map(name: str) -> None:
    """4.5 is what WCAG 2 asks for, at level AA."""
    for share in np.linspace(0, 1, 512).tolist():
        colour = colormaps[name](share)
        low, high = sorted((_luminance(colour), _luminance(letters_on(colour))))
        assert (high + 0.05) / (low + 0.05) >= 4.5, colour


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


@pytest.mark.parametrize(
    ("speed", "label"), [(0.0, "0"), (0.143, "0.14"), (9.94, "9.9"), (10.4, "10"), (1092.3, "1092")]
)
def test_a_slow_sweep_has_a_speed_too(speed: float, label: str) -> None:
    assert speed_label(speed) == label
