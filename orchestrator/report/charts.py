"""Small charts as SVG, in the page's own colours, light or dark. Texts that a user chose are escaped."""

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnsweep.orchestrator.analysis.labels import clipped, number_label, power_label
from attnsweep.orchestrator.report.templating import without_folders

STYLE = (
    "text{font:11px system-ui,'DejaVu Sans',sans-serif;fill:var(--ink,#1a1a1a)}"
    " .soft{fill:var(--soft,#595959);font-size:10px} .rule{stroke:var(--line,#d9d9d9)} .edge{stroke:var(--ink,#1a1a1a)}"
)
_MAX_LEFT, _RIGHT, _TOP, _BOTTOM, _LEGEND_ROW, _LETTER = 140, 12, 24, 42, 17, 6.2
_MAX_TICKS, _MAX_PLACES = 6, 8
_NAMES = {"class_": "class", "dash": "stroke-dasharray"}


@dataclass(frozen=True, slots=True)
class Axis:
    """`scale` makes values linear on the paper; `ticks` are values with labels."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    label: str = ""
    scale: Callable[[NDArray[np.float64]], NDArray[np.float64]] = np.asarray

    def at(self, values: ArrayLike) -> NDArray[np.float64]:
        """From 0 to 1; what lies beyond is drawn at the axis's end."""
        with np.errstate(divide="ignore", invalid="ignore"):
            low, high = self.scale(np.array([self.low, self.high]))
            share = (self.scale(np.asarray(values, dtype=np.float64)) - low) / ((high - low) or 1.0)
        return np.asarray(np.clip(share, 0, 1))


def linear_axis(low: float, high: float, label: str = "", *, whole: bool = False) -> Axis:
    if low == high:
        low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
    rough = (high - low) / (_MAX_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    step = max(step, 1.0) if whole else step
    ticks = np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1) * step
    return Axis(low, high, [(tick, f"{tick:,.0f}" if whole else f"{tick:.4g}") for tick in ticks.tolist()], label)


def log_axis(low: float, high: float, label: str = "") -> Axis:
    if low == high:
        low, high = low / 2, high * 2
    first, last = math.log10(low), math.log10(high)
    factors = (1,) if last - first >= 2 else (1, 3) if last - first >= 1 else (1, 1.5, 2, 3, 5, 7)
    powers = range(math.floor(first), math.ceil(last) + 1)
    ticks = [factor * 10.0**power for power in powers for factor in factors]
    ticks = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
    every = math.ceil(len(ticks) / _MAX_TICKS)
    return Axis(low, high, [(tick, number_label(tick)) for tick in ticks[::every]], label, np.log10)


def step_axis(last: int) -> Axis:
    """Logarithmic from ten steps on, with a place for step 0."""
    if last < 10:
        return linear_axis(0, max(last, 1), "optimizer steps", whole=True)
    powers = range(int(math.log10(last)) + 1)
    ticks = [(0.0, "0"), *((10.0**power, power_label(power) if power > 3 else f"{10**power:,}") for power in powers)]
    return Axis(0, last, ticks, "optimizer steps", np.log1p)


def share_axis(label: str = "") -> Axis:
    return Axis(0, 1, [(tick / 4, f"{tick / 4:g}") for tick in range(5)], label)


def places_axis(names: Sequence[str], label: str = "", *, edges: Sequence[str] = ()) -> Axis:
    """Places 0, 1, ... in a row. `edges`: labels between them, one more than places."""
    shown, first = (edges, -0.5) if edges else (names, 0.0)
    every = math.ceil(len(shown) / _MAX_PLACES)
    ticks = [(place + first, shown[place]) for place in range(0, len(shown), every)]
    return Axis(-0.5, len(names) - 0.5, ticks, label)


def shade(colour: str, share: float) -> str:
    """From nearly white to the colour."""
    part = 0.06 + 0.94 * share
    channels = (round(255 + part * (int(colour[first : first + 2], 16) - 255)) for first in (1, 3, 5))
    return "#" + "".join(f"{channel:02x}" for channel in channels)


@dataclass
class Chart:
    """A panel of two axes; what is added later is drawn above."""

    x: Axis
    y: Axis
    title: str = ""
    width: float = 360
    height: float = 250
    right: float = _RIGHT
    parts: list[str] = field(default_factory=list)
    left: float = field(init=False)

    def __post_init__(self) -> None:
        self.left = min(30 + _LETTER * max((len(label) for _, label in self.y.ticks), default=0), _MAX_LEFT)

    def _place(self, x: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        wide, high = self.width - self.left - self.right, self.height - _TOP - _BOTTOM
        return self.left + wide * self.x.at(x), _TOP + high * (1 - self.y.at(y))

    def _path(self, x: ArrayLike, y: ArrayLike) -> str:
        points = np.column_stack(self._place(x, y))
        return "M" + "L".join(f"{at:.1f} {up:.1f}" for at, up in points[np.isfinite(points).all(axis=1)].tolist())

    def line(self, x: ArrayLike, y: ArrayLike, colour: str, *, dash: str = "", width: float = 1.8) -> None:
        self.parts.append(_tag("path", d=self._path(x, y), fill="none", stroke=colour, stroke_width=width, dash=dash))

    def band(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, colour: str, opacity: float = 0.2) -> None:
        x, low, high = (np.asarray(each, dtype=np.float64) for each in (x, low, high))
        path = self._path(np.append(x, x[::-1]), np.append(low, high[::-1]))
        self.parts.append(_tag("path", d=path + "Z", fill=colour, fill_opacity=opacity))

    def area(self, rings: Sequence[NDArray[np.float64]], colour: str) -> None:
        """Rings of points; a ring inside another is a hole."""
        path = "".join(self._path(ring[:, 0], ring[:, 1]) + "Z" for ring in rings)
        self.parts.append(_tag("path", d=path, fill=colour, fill_rule="evenodd"))

    def cell(
        self, x: tuple[float, float], y: tuple[float, float], colour: str, title: str = "", *, stroke: str = "none"
    ) -> None:
        (left, right), (top, bottom) = self._place(x, y)[0], self._place(x, y)[1][::-1]
        size = {"width": f"{right - left:.1f}", "height": f"{bottom - top:.1f}"}
        self.parts.append(_tag("rect", title, x=f"{left:.1f}", y=f"{top:.1f}", **size, fill=colour, stroke=stroke))

    def interval(self, x: tuple[float, float], y: tuple[float, float, float], colour: str, title: str = "") -> None:
        """A share with its bounds at the middle of the range `x`, which is drawn as a line."""
        (left, right), _ = self._place(x, [0, 0])
        _, (share, low, high) = self._place([0] * 3, y)
        middle = (left + right) / 2
        path = f"M{middle:.1f} {low:.1f}V{high:.1f}M{left:.1f} {share:.1f}H{right:.1f}"
        dot = _tag("circle", cx=f"{middle:.1f}", cy=f"{share:.1f}", r=4, fill=colour)
        self.parts.append(_tag("g", title, _tag("path", d=path, stroke=colour, stroke_width=1.6) + dot))

    def note(self, x: float, y: float, text: str, *, colour: str = "", dx: float = 0, dy: float = 4) -> None:
        """Centred at `x`, or with `dx` beginning there. `colour`: by default the page's own."""
        at, up = self._place([x], [y])
        style = {"style": f"fill:{colour}"} if colour else {"class_": "soft"}
        self.parts.append(_text(at[0] + dx, up[0] + dy, text, "start" if dx else "middle", **style))

    def level(self, y: float, name: str) -> None:
        """A horizontal line, named in the right margin."""
        self.line([self.x.low, self.x.high], [y, y], "var(--soft,#595959)", dash="4 3", width=0.9)
        self.note(self.x.high, y, clipped(name, 16), dx=4)

    def svg(self, alt: str, legend: Mapping[str, str] | None = None) -> str:
        """`legend` has colours by name."""
        base, rows = self.height - _BOTTOM, _legend_rows(legend or {}, self.width)
        left, right, top, frame = self.left, self.width - self.right, _TOP, []
        room = int((right - left) / max(len(self.x.ticks), 1) / _LETTER)
        across, _ = self._place([value for value, _ in self.x.ticks], self.y.low)
        _, upward = self._place(self.x.low, [value for value, _ in self.y.ticks])
        for (_value, label), at in zip(self.x.ticks, across, strict=True):
            frame.append(_tag("path", d=f"M{at:.1f} {base}v4", class_="edge"))
            frame.append(_text(at, base + 15, clipped(label, max(room, 4)), "middle", class_="soft"))
        for (_value, label), up in zip(self.y.ticks, upward, strict=True):
            frame.append(_tag("path", d=f"M{left} {up:.1f}H{right}", class_="rule"))
            frame.append(_text(left - 5, up + 4, clipped(label, int((left - 18) / _LETTER)), "end", class_="soft"))
        frame.append(_tag("path", d=f"M{left} {top}V{base}H{right}", class_="edge", fill="none"))
        frame.append(_text((left + right) / 2, base + 32, clipped(self.x.label, 48), "middle"))
        up = (top + base) / 2
        frame.append(_text(12, up, clipped(self.y.label, 36), "middle", transform=f"rotate(-90 12 {up})"))
        frame.append(_text(left, 14, clipped(self.title, int((self.width - left) / _LETTER)), "start", font_weight=600))
        for row, entries in enumerate(rows):
            for x, name, colour in entries:
                y = self.height + _LEGEND_ROW * row
                frame.append(_tag("rect", x=x, y=y - 1, width=10, height=10, fill=colour))
                frame.append(_text(x + 14, y + 8, name, "start", class_="soft"))
        box = f"0 0 {self.width:g} {self.height + _LEGEND_ROW * len(rows):g}"
        return _tag("svg", "", "".join(frame + self.parts), viewBox=box, role="img", aria_label=clipped(alt, 1000))


def as_file(svg: str) -> str:
    """A chart with the style that pages have."""
    head, rest = svg.split(">", 1)
    return f'{head} xmlns="http://www.w3.org/2000/svg" style="background:#fff"><style>{STYLE}</style>{rest}'


def _legend_rows(legend: Mapping[str, str], width: float) -> list[list[tuple[float, str, str]]]:
    rows: list[list[tuple[float, str, str]]] = []
    x = width
    for name, colour in legend.items():
        label = clipped(name.replace("_", " "), 40)
        if x + 24 + _LETTER * len(label) > width:
            rows, x = [*rows, []], 14.0
        rows[-1].append((x, label, colour))
        x += 26 + _LETTER * len(label)
    return rows


def _text(x: float, y: float, text: str, end: str, **attributes: object) -> str:
    return _tag("text", "", _escaped(text), x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=end, **attributes)


def _title(title: str) -> str:
    return f"<title>{_escaped(title)}</title>" if title else ""


def _escaped(text: object) -> str:
    return html.escape(without_folders(str(text)))


def _tag(tag: str, title: str = "", inside: str = "", /, **attributes: object) -> str:
    named = ((_NAMES.get(name) or name.replace("_", "-"), each) for name, each in attributes.items() if each != "")
    written = "".join(f' {name}="{_escaped(each)}"' for name, each in named)
    return f"<{tag}{written}>{_title(title)}{inside}</{tag}>"
