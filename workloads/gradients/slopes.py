"""Compares autograd's gradients with slopes of the loss, along one random direction per parameter."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from attnsweep.workloads.gradients.differences import Slope, slope
from attnsweep.workloads.gradients.finding import DIFFERENCES, Finding, Verdict
from attnsweep.workloads.gradients.subject import Subject
from attnsweep.workloads.identities.identity import Point

_SURE = 10.0
"""The gradient fails if it differs from the slope by this many times the slope's estimated error."""
_MESSAGES = {
    "fails": "autograd's gradient is not the slope of the loss: a backward pass written by hand, or a detach",
    "kink": "slopes at successive steps differ: the loss has a kink here, such as that of a ReLU",
    "rounding": "the gradient is too small to be measured by differences of the loss",
}
_ORDER = ("fails", "kink", "rounding", "holds")


def check_slopes(subject: Subject, points: Sequence[Point]) -> Iterator[Finding]:
    """Compares gradients with estimated slopes of the loss: one finding per parameter, for the worst training."""
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
    direction = _direction(at.weights[name], seed)
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


def _direction(like: Tensor, seed: int) -> Tensor:
    drawn = torch.randn(like.shape, generator=torch.Generator().manual_seed(seed), dtype=like.dtype)
    unit: Tensor = drawn / drawn.norm()
    return unit
