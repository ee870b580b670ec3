"""Letters on coloured cells can be read."""

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from matplotlib.typing import ColorType

from attnsweep.orchestrator.analysis.figures import letters_on


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
