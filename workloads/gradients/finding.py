"""The result of one check of gradients."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["holds", "fails", "kink", "rounding", "skipped"]

ROUNDING = 1e-12
"""The largest accepted relative error of numbers that are equal up to rounding in float64. Measured: at most 4e-15 on
shipped workloads."""
DIFFERENCES = 1e-7
"""The largest accepted relative error of fourth-order differences. Measured: at most 6e-10."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """The result of one check of gradients, for one or several parameters.

    Attributes:
        check: The kind of check: `fused`, `blocks`, `compiled`, `differences`, `sgd step`, or the class of an identity.
        name: The compared quantity, such as `queries and keys of block 0, head 1`.
        parameter: The name of the parameter, or of several.
        where: The weights at which gradients were computed: `random weights`, or the end of a training.
        error: The largest error over the trainings, relative to the size of the gradient; NaN if one was NaN; `None` if
            nothing was measured.
        threshold: The largest error that passes.
        verdict: `fails` means a fault. `kink` and `rounding` mean that differences of the loss do not converge, so that
            the check is undecided. `skipped` means that the check does not apply.
        message: The meaning of a verdict other than `holds`; else empty.
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
    """Returns `holds` if the error is within the threshold, else `fails`. NaN fails."""
    return "holds" if error <= threshold else "fails"


def compared(check: str, name: str, parameter: str, where: str, errors: Sequence[float], reason: str) -> Finding:
    """Makes the finding for numbers that must be equal up to rounding. `reason` is the message if they are not."""
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
    """Returns the largest error, or NaN if any error is NaN."""
    return next((error for error in errors if error != error), max(errors))
