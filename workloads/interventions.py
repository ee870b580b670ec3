"""Interventions: changes to a training while it runs, the text of its parameter `intervention`.

Example: `freeze attention.query 0..500; clamp 1:0 previous_token 0..; scale 0:0 2 100..300; kick 0.1 at 300`. The steps
A..B include A and exclude B; A.. goes on to the end. Commands that train nothing import this, so it does not import
PyTorch.
"""

import functools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.update_rules import UPDATE_RULES

PATTERNS = ("previous_token", "uniform", "none", "self", "next_token")
"""The patterns to which a head can be clamped.

`previous_token`, `self` and `next_token` put all weight on one token, relative to the query; on the query's own if it
does not see that one. `uniform` weighs all keys equally that the query sees. With `none` all weights are 0.
"""
BY_POSITION = ("previous_token", "self", "next_token")
"""Cross-attention, whose keys are another sentence, has none of these."""
INTERVENTION = "intervention"
CLAMP = "clamp_H"
"""The buffer of an attention layer with each head's `pattern_number`, or 0."""
LOGIT_FACTOR = "logit_factor_H"
"""The buffer with the factor of each head's logits."""
NEUTRAL = {CLAMP: 0, LOGIT_FACTOR: 1}
"""The values of heads without an intervention."""

_FORMS = (
    "freeze NAME A..B, clamp LAYER:HEAD PATTERN A..B, scale LAYER:HEAD FACTOR A..B, scale attention FACTOR A..B, or"
    " kick SIZE at STEP, joined by ;"
)
_STEPS = r"(?P<start>\d{1,10})\.\.(?P<until>\d{1,10})?"
_HEAD = r"(?P<layer>\d{1,4}):(?P<head>\d{1,4})"
_NUMBER = r"(?P<number>\d+\.?\d*(?:[eE][-+]?\d+)?)"
_FREEZE = re.compile(rf"freeze\s+(?P<parameter>[A-Za-z_][\w.]*)\s+{_STEPS}")
_CLAMP = re.compile(rf"clamp\s+{_HEAD}\s+(?P<pattern>\w+)\s+{_STEPS}")
_SCALE = re.compile(rf"scale\s+(?:{_HEAD}|attention)\s+{_NUMBER}\s+{_STEPS}")
_KICK = re.compile(rf"kick\s+{_NUMBER}\s+at\s+(?P<start>\d{{1,10}})(?P<until>)")


@dataclass(frozen=True, slots=True)
class Steps:
    """From `start` to just before `until`; `None` for the training's end."""

    start: int
    until: int | None

    def __contains__(self, step: int) -> bool:
        return self.start <= step and (self.until is None or step < self.until)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Intervention:
    steps: Steps
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze(_Intervention):
    """The optimizer's averages go on.

    Attributes:
        parameter: Neighbouring parts, between dots, of the parameters' names: `attention.query` matches
            `blocks.0.attention.query.weight`.
    """

    parameter: str

    def names(self, parameter: str) -> bool:
        return f".{self.parameter}." in f".{parameter}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Clamp(_Intervention):
    layer: int
    head: int
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale(_Intervention):
    """`layer` and `head` are `None` for all heads. Several factors of a head multiply."""

    layer: int | None
    head: int | None
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kick(_Intervention):
    """Adds normal noise of `size` times the parameters' norm before a step, after its probe; frozen ones stay. Its
    `steps` go on to the end, which it influences."""

    size: float


Intervention = Freeze | Clamp | Scale | Kick


@functools.cache
def interventions_of(text: str | None) -> tuple[Intervention, ...]:
    """Parses the parameter `intervention`."""
    return () if text is None else tuple(_parsed(part.strip()) for part in text.split(";"))


def check_interventions(text: str | None, n_steps: int, optimizer: str) -> None:
    """Refuses interventions beyond the training's steps, and any with L-BFGS."""
    interventions = interventions_of(text)
    if interventions and optimizer == "lbfgs":
        raise refused(f"{text} with optimizer=lbfgs", f"one of {', '.join(UPDATE_RULES)}", "change optimizer")
    for intervention in interventions:
        if max(intervention.steps.start + 1, intervention.steps.until or 0) > n_steps:
            expected = f"an intervention within the training's steps 0..{n_steps}"
            raise refused(intervention, expected, "lower the steps of the intervention, or raise n_steps")


def pattern_number(pattern: str) -> int:
    """In the buffer `CLAMP`, from 1 on; there 0 is a head that is not clamped."""
    return PATTERNS.index(pattern) + 1


def boundaries_of(interventions: Iterable[Intervention]) -> frozenset[int]:
    """The steps just before which some intervention begins, ends or kicks."""
    ends = {end for intervention in interventions for end in (intervention.steps.start, intervention.steps.until)}
    return frozenset(step for step in ends if step is not None)


def _parsed(text: str) -> Intervention:
    matches = (form.fullmatch(text) for form in (_FREEZE, _CLAMP, _SCALE, _KICK))
    match = next((match for match in matches if match), None)
    if match is None:
        raise refused(text, _FORMS, 'write for example "freeze attention.query 0..500; kick 0.1 at 300"')
    found = match.groupdict()
    steps, number = Steps(int(found["start"]), int(found["until"]) if found["until"] else None), found.get("number")
    if steps.until is not None and steps.until <= steps.start:
        raise refused(text, "steps A..B with A < B, or A.. up to the end", "exchange A and B, or remove it")
    if number is not None and (not math.isfinite(float(number)) or (match.re is _KICK and not float(number))):
        raise refused(text, "a finite number, of a kick above 0", "change it, or remove the intervention")
    if match.re is _FREEZE:
        return Freeze(parameter=found["parameter"], steps=steps, text=text)
    if match.re is _KICK:
        return Kick(size=float(number or 0), steps=steps, text=text)
    layer, head = (None if found[name] is None else int(found[name]) for name in ("layer", "head"))
    if match.re is _SCALE:
        return Scale(layer=layer, head=head, factor=float(number or 0), steps=steps, text=text)
    if found["pattern"] not in PATTERNS:
        raise refused(found["pattern"], f"one of the patterns {', '.join(PATTERNS)}", "correct the pattern's name")
    return Clamp(layer=layer or 0, head=head or 0, pattern=found["pattern"], steps=steps, text=text)


def refused(given: object, expected: str, fix: str) -> SpecError:
    """For an intervention that is not valid, or that the model does not support."""
    return SpecError(INTERVENTION, given=str(given), expected=expected, fix=fix)
