"""Conditions on metrics, such as `train_accuracy >= 0.99 and loss < 0.1`."""

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
    """Where a condition holds, in the metrics' shape; not where one of its metrics is NaN."""
    terms = terms_of(condition)
    for name, _, _ in terms:
        if name not in metrics:
            known_metrics = ", ".join(sorted(metrics))
            expected = f"a condition on metrics that the workload measures: {known_metrics}"
            fix = did_you_mean(name, metrics, otherwise=f"let the workload measure {name}, or use one of these metrics")
            raise SpecError(subject, given=condition, expected=expected, fix=fix)
    with np.errstate(invalid="ignore"):
        held: NDArray[np.bool_] = np.logical_and.reduce(
            [compare(metrics[name], number) for name, compare, number in terms]
        )
    return held


def terms_of(condition: str) -> list[tuple[str, Compare, float]]:
    """A condition's comparisons: metric, sign, number."""
    matches = [_TERM.fullmatch(term) for term in re.split(r"\band\b", condition)]
    if not all(matches):
        expected = "comparisons of a metric with a number, such as: accuracy >= 0.99 and loss < 0.1"
        fix = "write one comparison, or several comparisons joined by `and`"
        raise SpecError("a condition", given=condition, expected=expected, fix=fix)
    terms = [match.groups() for match in matches if match]
    return [(name, COMPARISONS[sign], float(number)) for name, sign, number in terms]
