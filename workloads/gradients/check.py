"""All checks of the gradients of some trainings at some weights: one row per check and parameter. Axes: L lane."""

import re
from collections.abc import Iterator, Sequence

from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.programs import NoCompilerError
from attnsweep.workloads.engine.traces import NoRuleError
from attnsweep.workloads.gradients.engines import block_gradients, vmapped_gradients
from attnsweep.workloads.gradients.finding import ROUNDING, Finding, judged, worst
from attnsweep.workloads.gradients.sgd_step import check_sgd_step
from attnsweep.workloads.gradients.slopes import check_slopes
from attnsweep.workloads.gradients.subject import Subject
from attnsweep.workloads.identities.identity import Identity, Point, largest

_FUSED = "the engine's gradient is not that of the training alone: the loss mixes trainings, or an operation differs"


def check(subject: Subject, *, compiles: bool = False) -> Iterator[Finding]:
    """Checks the gradients of all trainings of a subject.

    Args:
        subject: The trainings, and their weights.
        compiles: Whether to check the compiled blocks too, which takes a C++ compiler and up to a minute.
    """
    points = subject.points()
    yield from check_vmapped(subject, points)
    yield from check_blocks(subject, points, compiles=compiles)
    yield from check_slopes(subject, points)
    yield from check_identities(subject, points)
    yield from check_sgd_step(subject, points)


def check_vmapped(subject: Subject, points: Sequence[Point]) -> Iterator[Finding]:
    """A row for each parameter: the vmapped engine."""
    return _compared("fused", subject, points, vmapped_gradients(subject))


def check_blocks(subject: Subject, points: Sequence[Point], *, compiles: bool) -> Iterator[Finding]:
    """A row for each parameter: the block engine. To trace a shape takes seconds, to compile it up to a minute."""
    for name, compiled in (("blocks", False), ("compiled", True)):
        if compiles or not compiled:
            try:
                gradients = block_gradients(subject, compiled=compiled)
            except (NoRuleError, NoCompilerError) as error:
                yield _skipped(name, subject, f"the vmapped engine trains this shape: {error}")
                return
            yield from _compared(name, subject, points, gradients)


def _compared(check: str, subject: Subject, points: Sequence[Point], fused: State) -> Iterator[Finding]:
    """A row for each parameter: the engine's gradients (L, ...) against those of each training alone."""
    for name, of_lanes in fused.items():
        error = worst([largest(of_lanes[lane] - at.gradients[name]) / at.scale for lane, at in enumerate(points)])
        verdict = judged(error, ROUNDING)
        yield Finding(
            check=check,
            name="the gradient of each training alone",
            parameter=name,
            where=subject.where,
            error=error,
            threshold=ROUNDING,
            verdict=verdict,
            message=_FUSED if verdict == "fails" else "",
        )


def check_identities(subject: Subject, points: Sequence[Point]) -> Iterator[Finding]:
    """A row for each identity and parameter, with the worst of the trainings that declare it."""
    errors: dict[tuple[str, str, str], list[tuple[float, Identity, Point]]] = {}
    for training, at in zip(subject.lanes.trainings, points, strict=True):
        for identity in subject.workload.identities(training.parameters):
            for found in identity.errors(at):
                key = _in_words(type(identity).__name__), identity.name, found.parameter
                errors.setdefault(key, []).append((found.error, identity, at))
    for (kind, name, parameter), of_trainings in errors.items():
        error = worst([each[0] for each in of_trainings])
        _, identity, at = next(each for each in of_trainings if each[0] is error)
        verdict = judged(error, ROUNDING)
        yield Finding(
            check=kind,
            name=name,
            parameter=parameter,
            where=subject.where,
            error=error,
            threshold=ROUNDING,
            verdict=verdict,
            message=identity.reason(at) if verdict == "fails" else "",
        )


def _in_words(name: str) -> str:
    """`KeyBias` as `key bias`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def _skipped(check: str, subject: Subject, why: str) -> Finding:
    return Finding(
        check=check,
        name="the gradient of each training alone",
        parameter="all",
        where=subject.where,
        error=None,
        threshold=ROUNDING,
        verdict="skipped",
        message=why,
    )
