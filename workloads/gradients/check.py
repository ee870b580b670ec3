"""Runs all checks of the gradients of some trainings: one finding per check and parameter. Axes: L lane."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from attnsweep.workloads.engine.compiling.libraries import NoCompilerError
from attnsweep.workloads.engine.compiling.traces import NoRuleError
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.gradients.engines import block_gradients, vmapped_gradients
from attnsweep.workloads.gradients.finding import ROUNDING, Finding, compared, worst
from attnsweep.workloads.gradients.sgd_step import check_sgd_step
from attnsweep.workloads.gradients.slopes import check_slopes
from attnsweep.workloads.gradients.subject import Subject
from attnsweep.workloads.identities.identity import Identity, Point, largest

_ALONE = "the gradient of each training alone"
_FUSED = (
    "the engine's gradient differs from that of the training alone: the loss mixes trainings, or an operation differs"
)


def check(subject: Subject, *, compiles: bool = False) -> Iterator[Finding]:
    """Runs all gradient checks on the trainings of a subject.

    Args:
        subject: The trainings and their weights.
        compiles: Whether to check the compiled blocks too, which needs a C++ compiler and up to a minute.
    """
    points = subject.points()
    yield from check_vmapped(subject, points)
    yield from check_blocks(subject, points, compiles=compiles)
    yield from check_slopes(subject, points)
    yield from check_identities(subject, points)
    yield from check_sgd_step(subject, points)


def check_vmapped(subject: Subject, points: Sequence[Point]) -> Iterator[Finding]:
    """Compares the `vmap` engine's gradients with those of each training alone. Yields one finding per parameter."""
    return _compared("fused", subject, points, vmapped_gradients(subject))


def check_blocks(subject: Subject, points: Sequence[Point], *, compiles: bool) -> Iterator[Finding]:
    """Compares the block engine's gradients with those of each training alone. Yields one finding per parameter.

    Tracing takes seconds, compiling up to a minute.
    """
    for name, compiled in (("blocks", False), ("compiled", True)):
        if compiles or not compiled:
            try:
                gradients = block_gradients(subject, compiled=compiled)
            except (NoRuleError, NoCompilerError) as error:
                yield _skipped(name, subject, f"the vmapped engine trains this shape: {error}")
                return
            yield from _compared(name, subject, points, gradients)


def _compared(check: str, subject: Subject, points: Sequence[Point], fused: State) -> Iterator[Finding]:
    """Compares an engine's gradients (L, ...) with those of each training alone. Yields one finding per parameter."""
    for name, gradient_L in fused.items():
        errors = [largest(gradient_L[lane] - at.gradients[name]) / at.scale for lane, at in enumerate(points)]
        yield compared(check, _ALONE, name, subject.where, errors, _FUSED)


def check_identities(subject: Subject, points: Sequence[Point]) -> Iterator[Finding]:
    """Checks the gradient identities that the workload declares: one finding per identity and parameter.

    A finding is about the worst of the trainings that declare the identity. Its message is the identity's reason.
    """
    by_parameter: dict[tuple[str, str, str], list[tuple[float, Identity, Point]]] = {}
    for training, at in zip(subject.lanes.trainings, points, strict=True):
        for identity in subject.workload.identities(training.parameters):
            for error in identity.errors(at):
                key = _in_words(type(identity).__name__), identity.name, error.parameter
                by_parameter.setdefault(key, []).append((error.error, identity, at))
    for (kind, name, parameter), declarations in by_parameter.items():
        errors = [error[0] for error in declarations]
        _, identity, at = declarations[errors.index(worst(errors))]
        finding = compared(kind, name, parameter, subject.where, errors, "")
        yield replace(finding, message=identity.reason(at)) if finding.verdict == "fails" else finding


def _in_words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def _skipped(check: str, subject: Subject, why: str) -> Finding:
    return Finding(
        check=check,
        name=_ALONE,
        parameter="all",
        where=subject.where,
        error=None,
        threshold=ROUNDING,
        verdict="skipped",
        message=why,
    )
