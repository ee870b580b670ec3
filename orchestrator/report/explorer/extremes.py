"""The trials at the ends of a sweep: of the lowest and the highest loss, and nearest the boundary of the stuck ones."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.phase.diagram import PhaseDiagram
from attnsweep.orchestrator.report.explorer.points import LOSS, Points

_MOST = 5


@dataclass(frozen=True, slots=True)
class Extremes:
    """The first trials in one order.

    Attributes:
        title: The order in words.
        measure: What `values` are.
        trials: Places among all trials.
        values: The measure of each.
    """

    title: str
    measure: str
    trials: tuple[int, ...]
    values: tuple[float, ...]


def find_extremes(points: Points, diagram: PhaseDiagram | None) -> tuple[Extremes, ...]:
    """At most five trials of each kind; equal ones in the order of their numbers.

    Args:
        points: The trials.
        diagram: The phase diagram of the stuck rate; its model says where the boundary is.
    """
    loss = points.axis(LOSS).values
    found = [
        _first("lowest median loss", LOSS, loss, loss),
        _first("highest median loss that is finite", LOSS, -loss, loss),
    ]
    if diagram is not None and diagram.surface is not None:
        places = (points.axis(diagram.x.name).values, points.axis(diagram.y.name).values)
        share = diagram.surface.at(*places)[0]
        title = "nearest the boundary: the model's stuck share is nearest 1/2"
        found.append(_first(title, "stuck share by the model", np.abs(share - 0.5), share))
    return tuple(each for each in found if each.trials)


def _first(title: str, measure: str, by: NDArray[np.float64], values: NDArray[np.float64]) -> Extremes:
    order = np.argsort(by, kind="stable")[:_MOST]
    order = order[np.isfinite(by[order])]
    return Extremes(title, measure, tuple(order.tolist()), tuple(values[order].tolist()))
