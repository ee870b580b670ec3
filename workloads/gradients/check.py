"""Runs all checks of the gradients of some trainings. Each check gives one finding per parameter or equation.

Axes: L training, n entry of a training's parameters.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from attnsweep.workloads.engine.compiling import libraries
from attnsweep.workloads.engine.compiling.gradient import GradientProgram, adding, gradient_graph
from attnsweep.workloads.engine.compiling.libraries import NoCompilerError
from attnsweep.workloads.engine.compiling.traces import NoRuleError
from attnsweep.workloads.engine.constants import digest_of
from attnsweep.workloads.engine.executors.blocks import BlockProgram, TracedStep
from attnsweep.workloads.engine.first_order import FirstOrder, take_step
from attnsweep.workloads.engine.functional import gradients_of, over_lanes
from attnsweep.workloads.engine.lane_state import LaneState, Problem
from attnsweep.workloads.engine.layout import Layout
from attnsweep.workloads.engine.optimizers import Settings, State
from attnsweep.workloads.gradients.subject import Subject, norm
from attnsweep.workloads.identities.identity import Conserved, Identity, Point, largest
from attnsweep.workloads.update_rules import UPDATE_RULES

Verdict = Literal["holds", "fails", "kink", "rounding", "skipped"]

ROUNDING = 1e-12
"""The largest accepted relative error of numbers that are equal up to rounding in float64. Errors of at most 4e-15 were
measured on shipped workloads."""
DIFFERENCES = 1e-7
"""The largest accepted relative error of slopes that are estimated by fourth-order differences. Errors of at most 6e-10
were measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """The result of one check of gradients: what was compared, the largest error, and the verdict.

    Attributes:
        check: The kind of check: `fused`, `blocks`, `compiled`, `differences`, `sgd step`, or the class of an identity.
        name: The compared quantity, such as `queries and keys of block 0, head 1`.
        parameter: The name of the parameter, or of several.
        where: The weights at which gradients were computed: `random weights`, or the end of a training.
        error: The largest error over the trainings, relative to the size of the gradient; NaN if one was NaN; `None` if
            nothing was measured.
        threshold: The largest error that passes.
        verdict: `fails` means a fault. `kink` (the loss has a bend) and `rounding` mean that differences of the loss do
            not converge, so that the check is undecided. `skipped` means that the check does not apply.
        message: The meaning of a verdict other than `holds`; else empty.
    """

    check: str
    name: str
    parameter: str
    where: str
    error: float | None
    verdict: Verdict
    threshold: float = ROUNDING
    message: str = ""


def compared(check: str, name: str, parameter: str, where: str, errors: Sequence[float], reason: str) -> Finding:
    """Makes the `Finding` of a check that passes if the largest of `errors` is no larger than rounding errors are. If
    the check fails, the message is `reason`."""
    error = worst(errors)
    verdict: Verdict = "holds" if error <= ROUNDING else "fails"
    message = reason if verdict == "fails" else ""
    return Finding(
        check=check, name=name, parameter=parameter, where=where, error=error, verdict=verdict, message=message
    )


def worst(errors: Sequence[float]) -> float:
    """Returns the largest of several errors; NaN if any of them is NaN."""
    return next((error for error in errors if error != error), max(errors))


_LARGEST, _SMALLEST = 2.0**-7, 2.0**-24
_AGREE = 1e-10
"""To estimate a slope, steps are halved until two slopes agree up to this share of the gradient's size."""
_UNIT_ROUNDOFF = 2.0**-53
_NOISE = 64.0
"""The assumed rounding error of a loss, in units of the loss's value times the unit roundoff."""


@dataclass(frozen=True, slots=True)
class Slope:
    """The slope of a loss along one direction, estimated from differences of losses.

    Attributes:
        value: The slope from the best length of step, the one with the smallest `gap`.
        gap: An estimate of the error: the difference from the slope of a step twice as long, or half the jump at a kink
            (bend of the loss).
        rounding: The error that rounding can explain at this step.
    """

    value: float
    gap: float
    rounding: float


def slope(loss: Callable[[float], float], length: float, scale: float) -> Slope:
    """Estimates the slope at 0 of a loss as a function of the distance along a line, by fourth-order central
    differences. The step size is chosen automatically.

    At the step h, the slope is (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h. Its error is h^4 f''''' / 30, and rounding
    of about |f| / h unit roundoffs. The step is halved until the slopes of two successive steps agree. This criterion
    does not use the gradient under test. A kink of the loss within the step, such as that of a ReLU, makes these slopes
    differ, and smaller steps avoid the kink. A kink at the very point shifts all slopes by half of its jump, so that
    they agree on a wrong value. Such a kink is detected by bend(h) = (f(h) + f(-h) - 2 f(0)) / h: the difference 2
    bend(h/2) - bend(h) is the jump at a kink, and vanishes like h^3 where f is smooth.

    Args:
        loss: The loss f as a function of the distance from the point.
        length: A distance over which the loss may change. Steps are fractions of it.
        scale: The size of the gradient, to which the accuracy is relative.
    """
    losses: dict[float, float] = {}

    def at(distance: float) -> float:
        if distance not in losses:
            losses[distance] = loss(distance)
        return losses[distance]

    def central(step: float) -> float:
        return (8.0 * (at(step) - at(-step)) - (at(2.0 * step) - at(-2.0 * step))) / (12.0 * step)

    def bend(step: float) -> float:
        return (at(step) + at(-step) - 2.0 * at(0.0)) / step

    step, best = _LARGEST * length, Slope(float("nan"), float("inf"), 0.0)
    wide = central(step)
    while step > _SMALLEST * length and best.gap > _AGREE * scale:
        step /= 2.0
        narrow = central(step)
        gap = max(abs(narrow - wide), abs(2.0 * bend(step) - bend(2.0 * step)) / 2.0)
        if gap < best.gap:
            best = Slope(narrow, gap, _NOISE * _UNIT_ROUNDOFF * abs(at(step)) / step)
        wide = narrow
    return best


_RATE = 2.0**40
"""The learning rate of the step from whose change of the weights a gradient is read. It is a power of 2, so that
dividing by it is exact, and so large that the digits of the weights do not matter."""


def vmapped_gradients(subject: Subject) -> State:
    """Computes gradients by name, with trainings as first axis, by `vmap`, as the engine does."""
    leaves = {name: value.detach().requires_grad_() for name, value in subject.weights.items()}
    loss_L = over_lanes(subject.template, subject.workload.loss)(leaves, subject.buffers, subject.batch)
    return gradients_of("loss", loss_L, leaves)


def block_gradients(subject: Subject, *, compiled: bool) -> State:
    """Computes the gradients of all trainings with the engine's program for a training step. If a step cannot be
    compiled, uses the program that computes only loss and gradient.

    Returns the gradients by the parameter's name; their first axis is the training.

    Raises:
        NoRuleError: If these trainings have neither program.
        NoCompilerError: If `compiled` is set and this machine cannot compile.
    """
    layout = Layout(subject.weights)
    problem = Problem(subject.workload, subject.template, layout, subject.lanes.shared, digest_of(subject.template))
    rate_L = torch.full((len(subject.lanes.trainings),), _RATE, dtype=torch.float64)
    lanes = LaneState(problem, _descent(rate_L), layout.rows(subject.weights), subject.buffers)
    try:
        return layout.views(_gradient_from_step(subject, lanes, compiled=compiled))
    except NoRuleError as no_step:
        try:
            return layout.views(_gradient_from_program(subject, lanes, compiled=compiled))
        except NoRuleError as no_gradient:
            raise NoRuleError(
                f"a training step cannot be compiled: {no_step}; a gradient cannot be compiled: {no_gradient}"
            ) from no_gradient


def _gradient_from_step(subject: Subject, lanes: LaneState, *, compiled: bool) -> Tensor:
    """Takes one compiled step of gradient descent, and computes the gradients from the change of the weights, one row
    per training."""
    if subject.lanes.shared.optimizer not in UPDATE_RULES:
        raise NoRuleError("the optimizer uses line searches, so one of its steps does not show the gradient")
    traced, before = TracedStep.of(lanes, subject.batch), lanes.rows.clone()
    if compiled:
        run = libraries.loaded(libraries.compiled(traced.step, traced.examples))
    else:
        run = libraries.interpreted(traced.step, traced.examples)
    BlockProgram(traced.blocking, run).advance(lanes, lambda _, __: [subject.batch], 1)
    return (before - lanes.rows) / _RATE


def _gradient_from_program(subject: Subject, lanes: LaneState, *, compiled: bool) -> Tensor:
    """Computes the gradients with the compiled program of loss and gradient, one row per training."""
    graph = gradient_graph(lanes, subject.batch)
    add = adding(graph)
    examples = GradientProgram.examples(graph, lanes, subject.batch)
    run = libraries.loaded(libraries.compiled_gradient(graph, examples)) if compiled else lambda inputs: add(*inputs)
    return GradientProgram(graph.parts, run).descent(lanes.rows, lanes.buffers, subject.batch, None)[1]


def _descent(rate_L: Tensor) -> FirstOrder:
    return FirstOrder(UPDATE_RULES["sgd"], Settings.plain(rate_L, n_steps=1))


_SURE = 10.0
"""A gradient fails the check if it differs from the estimated slope by more than this many estimated errors."""
_MESSAGES = {
    "fails": "autograd's gradient is not the slope of the loss: a backward pass written by hand, or a detach",
    "kink": "slopes at successive steps differ: the loss has a kink here, such as that of a ReLU",
    "rounding": "the gradient is too small to be measured by differences of the loss",
}
_ORDER = ("fails", "kink", "rounding", "holds")


def check_slopes(subject: Subject, points: Sequence[Point]) -> Iterator[Finding]:
    """Compares gradients with slopes of the loss that are estimated from differences of losses. Each parameter gets one
    finding, about the training with the largest error."""
    for number, name in enumerate(subject.weights):
        judgements = [_judged(subject, at, name, seed=number) for at in points]
        worst = min(_ORDER.index(verdict) for verdict, _ in judgements)
        verdict: Verdict = _ORDER[worst]  # type: ignore[assignment]
        yield Finding(
            check="differences",
            name="the slope of the loss",
            parameter=name,
            where=subject.where,
            error=max(error for judgement, error in judgements if judgement == verdict),
            threshold=DIFFERENCES,
            verdict=verdict,
            message=_MESSAGES.get(verdict, ""),
        )


def _judged(subject: Subject, at: Point, name: str, seed: int) -> tuple[Verdict, float]:
    drawn = torch.randn(at.weights[name].shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    direction = drawn / drawn.norm()
    estimate = _slope(subject, at, name, direction)
    error = abs(estimate.value - (at.gradients[name] * direction).sum().item()) / at.scale
    if error <= DIFFERENCES:
        return "holds", error
    if error * at.scale > _SURE * max(estimate.gap, estimate.rounding):
        return "fails", error
    return "kink" if estimate.gap > estimate.rounding else "rounding", error


def _slope(subject: Subject, at: Point, name: str, direction: Tensor) -> Slope:
    parameter = at.module.get_parameter(name)
    before = parameter.detach().clone()

    def loss(distance: float) -> float:
        parameter.copy_(before + distance * direction)
        return subject.workload.loss(at.module, at.batch).item()

    with torch.no_grad():
        try:
            return slope(loss, max(before.norm().item(), 1.0), at.scale)
        finally:
            parameter.copy_(before)


_MOVED = (
    "a step of gradient descent changes it by another amount: the engine's gradient is not that of the training alone, "
    "an identity fails, or the update is not plain descent"
)


def check_sgd_step(subject: Subject, points: Sequence[Point]) -> Iterator[Finding]:
    """Checks quantities that gradient flow conserves: one step of gradient descent must change them by the amounts that
    the gradients predict. Yields the result of the check for each quantity.

    The engine takes one step, at most as long as the norm of the weights. Errors are relative to the size of the
    weights; those of charges (conserved products of two weights) are relative to its square.
    """
    size = [max(norm(at.weights), torch.finfo(torch.float64).tiny) for at in points]
    rate = [size[lane] / at.scale for lane, at in enumerate(points)]
    after = _stepped(subject, rate)
    errors: dict[str, list[float]] = {}
    for lane, at in enumerate(points):
        training = subject.lanes.trainings[lane]
        old, new, gradients = (
            {name: value / size[lane] for name, value in state.items()}
            for state in (at.weights, {name: value[lane] for name, value in after.items()}, at.gradients)
        )
        for conserved in subject.workload.identities(training.parameters):
            if isinstance(conserved, Conserved):
                predicted = conserved.conserved(old) + rate[lane] ** 2 * conserved.moved(gradients)
                errors.setdefault(conserved.quantity, []).append(largest(conserved.conserved(new) - predicted))
    for quantity, errors_of_quantity in errors.items():
        yield compared("sgd step", "what the gradient predicts", quantity, subject.where, errors_of_quantity, _MOVED)


def _stepped(subject: Subject, rate: Sequence[float]) -> State:
    """Takes one step of the engine's gradient descent, with a learning rate for each training. Returns the new weights,
    with trainings as first axis."""
    rate_L = torch.tensor(rate, dtype=torch.float64)
    sgd = _descent(rate_L)
    weights = {name: value.clone() for name, value in subject.weights.items()}
    evaluated = torch.zeros_like(rate_L), vmapped_gradients(subject)
    take_step(sgd.rule, weights, sgd.state_of(weights), evaluated, sgd.constants | sgd.ahead(range(1))[0])
    return weights


_ALONE = "the gradient of each training alone"
_FUSED = (
    "the engine's gradient differs from that of the training alone: the loss mixes trainings, or an operation differs"
)


def check(subject: Subject, *, compiles: bool = False) -> Iterator[Finding]:
    """Runs all checks of gradients on the trainings of `subject`, one after the other, and yields their findings."""
    points = subject.points()
    yield from check_vmapped(subject, points)
    yield from check_blocks(subject, points, compiles=compiles)
    yield from check_slopes(subject, points)
    yield from check_identities(subject, points)
    yield from check_sgd_step(subject, points)


def check_vmapped(subject: Subject, points: Sequence[Point]) -> Iterator[Finding]:
    """Compares the engine's gradients by `vmap` with the gradients of each training alone. Each parameter gets one
    finding."""
    return _compared("fused", subject, points, vmapped_gradients(subject))


def check_blocks(subject: Subject, points: Sequence[Point], *, compiles: bool) -> Iterator[Finding]:
    """Compares the gradients of the engine's compiled programs with the gradients of each training alone. Each
    parameter gets one finding.

    Tracing takes seconds, compiling up to a minute.
    """
    for name, compiled in (("blocks", False), ("compiled", True))[: 1 + compiles]:
        try:
            gradients = block_gradients(subject, compiled=compiled)
        except (NoRuleError, NoCompilerError) as error:
            why = f"the vmapped engine trains this shape: {error}"
            yield Finding(
                check=name,
                name=_ALONE,
                parameter="all",
                where=subject.where,
                error=None,
                verdict="skipped",
                message=why,
            )
            return
        yield from _compared(name, subject, points, gradients)


def _compared(check: str, subject: Subject, points: Sequence[Point], fused: State) -> Iterator[Finding]:
    for name, gradient_L in fused.items():
        errors = [largest(gradient_L[lane] - at.gradients[name]) / at.scale for lane, at in enumerate(points)]
        yield compared(check, _ALONE, name, subject.where, errors, _FUSED)


def check_identities(subject: Subject, points: Sequence[Point]) -> Iterator[Finding]:
    """Checks the identities (equations for gradients) that the workload declares. Each identity and parameter gets one
    finding.

    A finding is about the worst of the trainings that declare the identity. Its message is the identity's reason.
    """
    by_parameter: dict[tuple[str, str, str], list[tuple[float, Identity, Point]]] = {}
    for training, at in zip(subject.lanes.trainings, points, strict=True):
        for identity in subject.workload.identities(training.parameters):
            for error in identity.errors(at):
                kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(identity).__name__).lower()
                key = kind, identity.name, error.parameter
                by_parameter.setdefault(key, []).append((error.error, identity, at))
    for (kind, name, parameter), declarations in by_parameter.items():
        errors = [error[0] for error in declarations]
        _, identity, at = declarations[errors.index(worst(errors))]
        finding = compared(kind, name, parameter, subject.where, errors, "")
        yield replace(finding, message=identity.reason(at)) if finding.verdict == "fails" else finding
