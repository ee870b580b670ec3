"""Conditions on what probes measure, as text: `train_accuracy >= 0.99 and loss < 0.1`. Axes: L lane, P probe."""

import math
import operator
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.errors import SpecError, did_you_mean

Compare: TypeAlias = Callable[[Any, float], Any]

COMPARISONS: Mapping[str, Compare] = MappingProxyType(
    {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
)
_TERM = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(>=|<=|>|<)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


def holds(
    condition: str, metrics: Mapping[str, NDArray[np.float64]], subject: str = "a condition"
) -> NDArray[np.bool_]:
    """Where a condition holds, (L, P); nowhere where one of its metrics was not measured.

    Args:
        condition: Comparisons of a metric with a number, joined by `and`.
        metrics: (L, P) by name.
        subject: What the condition is, in errors.

    Raises:
        SpecError: For a text that is no condition, or a metric that is not measured.
    """
    terms = terms_of(condition)
    for name, _, _ in terms:
        if name not in metrics:
            raise SpecError(
                subject,
                given=condition,
                expected=f"metrics that the workload measures: {', '.join(sorted(metrics))}",
                fix=did_you_mean(name, metrics, otherwise=f"measure {name}, or name another"),
            )
    with np.errstate(invalid="ignore"):
        held: NDArray[np.bool_] = np.logical_and.reduce(
            [compare(metrics[name], number) for name, compare, number in terms]
        )
    return held


def implies(condition: str, other: str) -> bool:
    """Whether a condition holds nowhere but where the other does too, as their comparisons tell.

    Raises:
        SpecError: For a text that is no condition.
    """
    terms = terms_of(condition)
    return all(any(_is_within(term, bound) for term in terms) for bound in terms_of(other))


def _is_within(term: tuple[str, Compare, float], bound: tuple[str, Compare, float]) -> bool:
    (name, compare, number), (of, bounds, limit) = term, bound
    upwards = (operator.ge, operator.gt)
    if name != of or (compare in upwards) != (bounds in upwards):
        return False
    is_closed = compare in (operator.ge, operator.le)
    first = number if is_closed else math.nextafter(number, math.inf if compare in upwards else -math.inf)
    return bool(bounds(first, limit))


def terms_of(condition: str) -> list[tuple[str, Compare, float]]:
    """The metric, the comparison and the number of each term.

    Raises:
        SpecError: For a text that is no condition.
    """
    matches = [_TERM.fullmatch(term) for term in re.split(r"\band\b", condition)]
    if not all(matches):
        raise SpecError(
            "a condition",
            given=condition,
            expected="comparisons of a metric with a number, such as: accuracy >= 0.99 and loss < 0.1",
            fix="write one such comparison, or several joined by `and`",
        )
    terms = [match.groups() for match in matches if match]
    return [(name, COMPARISONS[sign], float(number)) for name, sign, number in terms]
