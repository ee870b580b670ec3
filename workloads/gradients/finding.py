"""What a check of gradients found: one row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["holds", "fails", "kink", "rounding", "skipped"]

ROUNDING = 1e-12
"""The largest relative error of what is equal but for rounding in float64. [M: at most 4e-15 on shipped workloads.]"""
DIFFERENCES = 1e-7
"""The largest relative error of fourth-order differences. [M: 6e-10 or less at steps chosen by the two-step test.]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One row.

    Attributes:
        check: Its kind: `fused`, `blocks`, `compiled`, `differences`, `sgd step`, or the class of an
            identity.
        name: What was compared, such as `queries and keys of block 0, head 1`.
        parameter: The parameter, or several.
        where: The weights: `random weights`, or which training's end.
        error: The largest error over the trainings examined, relative to the size of the gradient; NaN if one was NaN;
            `None` if there is none to measure.
        threshold: The largest error that passes.
        verdict: `fails` is a fault. `kink` and `rounding`: differences that do not settle cannot judge. `skipped`: does
            not apply.
        message: What a failure, or a missing verdict, means; else empty.
    """

    check: str
    name: str
    parameter: str
    where: str
    error: float | None
    threshold: float
    verdict: Verdict
    message: str = ""


def judged(error: float, threshold: float) -> Verdict:
    """Whether an error passes; NaN does not."""
    return "holds" if error <= threshold else "fails"


def compared(check: str, name: str, parameter: str, where: str, errors: Sequence[float], reason: str) -> Finding:
    """The row of what is equal but for rounding, with the worst of some errors; the reason is said of a failure."""
    error = worst(errors)
    verdict = judged(error, ROUNDING)
    return Finding(
        check=check,
        name=name,
        parameter=parameter,
        where=where,
        error=error,
        threshold=ROUNDING,
        verdict=verdict,
        message=reason if verdict == "fails" else "",
    )


def worst(errors: Sequence[float]) -> float:
    """The largest; the first NaN if there is one."""
    return next((error for error in errors if error != error), max(errors))
