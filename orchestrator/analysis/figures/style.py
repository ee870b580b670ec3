"""The parts of the style that `house.mplstyle` cannot express: colours by meaning."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

import numpy as np
from matplotlib import rcParams, style
from matplotlib.colors import to_rgb
from matplotlib.typing import ColorType

BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#595959"
OUTCOME_COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "solved": "#009E73",
        "degenerate_zero": "#0072B2",
        "marginal": "#56B4E9",
        "runaway": "#CC79A7",
        "plateau": "#E69F00",
        "overfit": "#000000",
        "diverged": "#D55E00",
        "pruned": "#999999",
        "failed": "#595959",
    }
)
"""The colours of Okabe & Ito 2008 without yellow, which is hard to see on white."""
ROLE_COLOURS: Mapping[str, str] = MappingProxyType(
    {"positional": "#0072B2", "syntactic": "#D55E00", "rare_token": "#009E73", "none": "#595959"}
)
_OTHER_COLOURS = ("#CC79A7", "#E69F00", "#56B4E9", "#000000")
_GROUP_STYLES = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", "-.", "^"),
    ("#CC79A7", ":", "D"),
    ("#E69F00", "-", "v"),
    ("#56B4E9", "--", "P"),
    ("#000000", "-.", "X"),
)


@contextmanager
def house_style() -> Iterator[None]:
    """The style of all figures, as a `with` block or a decorator; the user's own settings have no effect."""
    with style.context("attnsweep.orchestrator.analysis.figures.house", after_reset=True):
        yield


def share_colours(outcome: str) -> str:
    """The colour map of shares that end so: solved ones have their own, since a share of them is good, not bad."""
    return "Greens" if outcome == "solved" else str(rcParams["image.cmap"])


def group_style(number: int) -> tuple[str, str, str]:
    """The colour, dashes and marker of a group by its number; they repeat after the seventh."""
    return _GROUP_STYLES[number % len(_GROUP_STYLES)]


def role_colour(role: str, roles: Sequence[str]) -> str:
    """The colour of a role, the same in every figure; a user's own roles get further colours, in the order of
    `roles`."""
    if role in ROLE_COLOURS:
        return ROLE_COLOURS[role]
    own = [each for each in roles if each not in ROLE_COLOURS]
    return _OTHER_COLOURS[own.index(role) % len(_OTHER_COLOURS)]


def letters_on(colour: ColorType) -> str:
    """Black or white, whichever has the greater contrast with a colour: at least 4.58, by the formula of WCAG 2."""
    channels = np.array(to_rgb(colour))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ (0.2126, 0.7152, 0.0722))
    return "black" if (luminance + 0.05) ** 2 > 0.05 * 1.05 else "white"
