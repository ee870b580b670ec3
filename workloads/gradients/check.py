"""All checks of the gradients of some trainings at some weights: one row per check and parameter. Axes: L lane."""

from collections.abc import Iterator, Sequence

from attnsweep.workloads.engine.first_order import FirstOrder
from attnsweep.workloads.engine.lanes_last import NoRuleError
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.programs import NoCompilerError, interpreted, loaded
from attnsweep.workloads.engine.update_rules import UPDATE_RULES
from attnsweep.workloads.gradients.engines import block_gradients, vmapped_gradients
from attnsweep.workloads.gradients.finding import ROUNDING, Finding, judged
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
    points = [subject.point(lane) for lane in range(len(subject.lanes.trainings))]
    yield from _compared("fused", subject, points, vmapped_gradients(subject))
    yield from _blocks(subject, points, compiles=compiles)
    yield from check_slopes(subject, points)
    yield from _identities(subject, points)


def _blocks(subject: Subject, points: Sequence[Point], *, compiles: bool) -> Iterator[Finding]:
    if not issubclass(UPDATE_RULES[subject.lanes.shared.optimizer], FirstOrder):
        yield _skipped("blocks", subject, "this optimizer searches along lines, so the vmapped engine trains it")
        return
    for name, make in (("blocks", interpreted), ("compiled", loaded)):
        if make is interpreted or compiles:
            try:
                gradients = block_gradients(subject, make)
            except (NoRuleError, NoCompilerError) as error:
                yield _skipped(name, subject, f"the vmapped engine trains this shape: {error}")
                return
            yield from _compared(name, subject, points, gradients)


def _compared(check: str, subject: Subject, points: Sequence[Point], fused: State) -> Iterator[Finding]:
    """A row for each parameter: the engine's gradients (L, ...) against those of each training alone."""
    for name, of_lanes in fused.items():
        error = _worst([largest(of_lanes[lane] - at.gradients[name]) / at.scale for lane, at in enumerate(points)])
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


def _identities(subject: Subject, points: Sequence[Point]) -> Iterator[Finding]:
    """The rows of all identities that the workload declares; those of the trainings of a subject are the same ones."""
    declared = [subject.workload.identities(training.parameters) for training in subject.lanes.trainings]
    for of_trainings in zip(*declared, strict=True):
        yield from _identity(subject, of_trainings, points)


def _identity(subject: Subject, of_trainings: Sequence[Identity], points: Sequence[Point]) -> Iterator[Finding]:
    found = [identity.errors(at) for identity, at in zip(of_trainings, points, strict=True)]
    for of_parameter in zip(*found, strict=True):
        errors = [each.error for each in of_parameter]
        error = _worst(errors)
        verdict, lane = judged(error, ROUNDING), errors.index(error)
        yield Finding(
            check=type(of_trainings[lane]).__name__,
            name=of_trainings[lane].name,
            parameter=of_parameter[lane].parameter,
            where=subject.where,
            error=error,
            threshold=ROUNDING,
            verdict=verdict,
            message=of_trainings[lane].reason(points[lane]) if verdict == "fails" else "",
        )


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


def _worst(errors: Sequence[float]) -> float:
    """The largest; the first NaN if there is one."""
    return next((error for error in errors if error != error), max(errors))
