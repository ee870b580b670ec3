"""Interventions: changes to a training while it runs, the text of its parameter `intervention`.

Example: `freeze attention.query 0..500; clamp 1:0 previous_token 0..; scale 0:0 2 100..300; kick 0.1 at 300`. The steps
A..B include A and exclude B; A.. goes on to the end. This module does not import PyTorch.
"""

import functools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.update_rules import UPDATE_RULES

PATTERNS = ("previous_token", "uniform", "none", "self", "next_token")
"""The patterns to which a head can be clamped.

`previous_token`, `self` and `next_token` put all weight on one token, relative to the query; on the query's own if it
does not see that one. `uniform` weighs all keys that the query sees equally. With `none` all weights are 0.
"""
BY_POSITION = ("previous_token", "self", "next_token")
"""Patterns by the positions of queries and keys; cross-attention, whose keys are another sentence, has none."""
INTERVENTION = "intervention"
CLAMP = "clamp_H"
"""The buffer of an attention layer with each head's `pattern_number`, or 0."""
LOGIT_FACTOR = "logit_factor_H"
"""The buffer of an attention layer that holds for each head the factor of its logits."""
NEUTRAL = {CLAMP: 0, LOGIT_FACTOR: 1}
"""For each buffer that an intervention sets, the value for a head without an intervention."""

_ALL_HEADS = "attention"
_FORMS = (
    "freeze NAME A..B, clamp LAYER:HEAD PATTERN A..B, scale LAYER:HEAD FACTOR A..B, scale attention FACTOR A..B, or"
    " kick SIZE at STEP, joined by ;"
)
_STEPS = r"(?P<start>\d{1,10})\.\.(?P<until>\d{1,10})?"
_HEAD = r"(?P<layer>\d{1,4}):(?P<head>\d{1,4})"
_NUMBER = r"\d+\.?\d*(?:[eE][-+]?\d+)?"
_FREEZE = re.compile(rf"freeze\s+(?P<parameter>[A-Za-z_][\w.]*)\s+{_STEPS}")
_CLAMP = re.compile(rf"clamp\s+{_HEAD}\s+(?P<pattern>\w+)\s+{_STEPS}")
_SCALE = re.compile(rf"scale\s+(?:{_HEAD}|{_ALL_HEADS})\s+(?P<factor>{_NUMBER})\s+{_STEPS}")
_KICK = re.compile(rf"kick\s+(?P<size>{_NUMBER})\s+at\s+(?P<step>\d{{1,10}})")


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps from `start` to just before `until`; if `until` is `None`, to the end of the training."""

    start: int
    until: int | None

    def __contains__(self, step: int) -> bool:
        return self.start <= step and (self.until is None or step < self.until)

    def __str__(self) -> str:
        return f"{self.start}..{'' if self.until is None else self.until}"


@dataclass(frozen=True, slots=True)
class Freeze:
    """Freezes parameters for some steps; the optimizer's averages go on.

    Attributes:
        parameter: One or more whole parts, between dots, of the parameters' names: `attention.query` matches
            `blocks.0.attention.query.weight`.
    """

    parameter: str
    steps: Steps

    def names(self, parameter: str) -> bool:
        return f".{self.parameter}." in f".{parameter}."

    def __str__(self) -> str:
        return f"freeze {self.parameter} {self.steps}"


@dataclass(frozen=True, slots=True)
class Clamp:
    """An intervention that replaces the attention weights of one head by a fixed pattern, for some steps."""

    layer: int
    head: int
    pattern: str
    steps: Steps

    def __str__(self) -> str:
        return f"clamp {self.layer}:{self.head} {self.pattern} {self.steps}"


@dataclass(frozen=True, slots=True)
class Scale:
    """Multiplies the attention logits of one head, or of all, by a factor; several factors of a head multiply."""

    layer: int | None
    head: int | None
    factor: float
    steps: Steps

    def __str__(self) -> str:
        heads = _ALL_HEADS if self.layer is None else f"{self.layer}:{self.head}"
        return f"scale {heads} {_digits(self.factor)} {self.steps}"


@dataclass(frozen=True, slots=True)
class Kick:
    """Adds normal noise, `size` times the parameters' norm, before a step and after its probe; frozen ones stay."""

    size: float
    step: int

    @property
    def steps(self) -> Steps:
        """The steps that the kick influences: from its own step to the end of the training."""
        return Steps(self.step, None)

    def __str__(self) -> str:
        return f"kick {_digits(self.size)} at {self.step}"


Intervention = Freeze | Clamp | Scale | Kick


@functools.cache
def interventions_of(text: str | None) -> tuple[Intervention, ...]:
    """Parses the parameter `intervention`, in order; none if null."""
    return () if text is None else tuple(map(_parsed, text.split(";")))


def check_interventions(text: str | None, n_steps: int, optimizer: str) -> None:
    """Refuses interventions beyond the training's steps, and any with L-BFGS."""
    interventions = interventions_of(text)
    if interventions and optimizer == "lbfgs":
        expected = f"one of {', '.join(UPDATE_RULES)}"
        raise SpecError("intervention", given=f"{text} with optimizer=lbfgs", expected=expected, fix="change optimizer")
    for intervention in interventions:
        last = max(intervention.steps.start + 1, intervention.steps.until or 0)
        if last > n_steps:
            expected = f"an intervention within the training's steps 0..{n_steps}"
            fix = "lower the steps of the intervention, or raise n_steps"
            raise SpecError("intervention", given=str(intervention), expected=expected, fix=fix)


def intervene(
    *,
    parameter: str | None = None,
    freeze: tuple[int, int | None] | None = None,
    head: str | None = None,
    clamp: str | None = None,
    scale: float | None = None,
    steps: tuple[int, int | None] = (0, None),
    kick: float | None = None,
    at: int | None = None,
) -> str:
    """Returns the text of one intervention. To use several, join the texts: `"; ".join([...])`.

    Args:
        parameter, freeze: One or more whole parts, between dots, of the names of parameters, and the steps that do not
            change these parameters.
        head: The head to clamp or scale, as `LAYER:HEAD`; `attention` scales all heads.
        steps: The steps at which `clamp` or `scale` holds: from the first number to just before the second, `None` for
            the end.
        kick, at: The norm of noise to add (a kick), relative to the parameters' norm, and the step at which to add it.

    Raises:
        SpecError: If the arguments do not describe exactly one valid intervention.
    """
    texts = []
    if parameter is not None and freeze is not None:
        texts.append(f"freeze {parameter} {Steps(*freeze)}")
    if head is not None and clamp is not None:
        texts.append(f"clamp {head} {clamp} {Steps(*steps)}")
    if head is not None and scale is not None:
        texts.append(f"scale {head} {_digits(scale)} {Steps(*steps)}")
    if kick is not None and at is not None:
        texts.append(f"kick {_digits(kick)} at {at}")
    n_given = sum(argument is not None for argument in (parameter, freeze, head, clamp, scale, kick, at))
    if len(texts) != 1 or n_given != 2:  # Every intervention needs two arguments besides `steps`.
        given = f"{n_given} of the arguments parameter, freeze, head, clamp, scale, kick and at"
        expected = "one pair of arguments: parameter and freeze, head and clamp, head and scale, or kick and at"
        fix = 'write one intervention per call, and join the texts with "; ".join([...])'
        raise SpecError("intervene", given=given, expected=expected, fix=fix)
    (intervention,) = interventions_of(texts[0])
    return str(intervention)


def pattern_number(pattern: str) -> int:
    """The pattern's number in the buffer `CLAMP`, from 1 on; there 0 is a head that is not clamped."""
    return PATTERNS.index(pattern) + 1


def boundaries_of(interventions: Iterable[Intervention]) -> frozenset[int]:
    """Returns the steps just before which some intervention begins, ends or adds noise."""
    ends = {end for intervention in interventions for end in (intervention.steps.start, intervention.steps.until)}
    return frozenset(step for step in ends if step is not None)


def _parsed(text: str) -> Intervention:
    clean = text.strip()
    if match := _FREEZE.fullmatch(clean):
        return Freeze(match["parameter"], _steps(clean, match))
    if match := _CLAMP.fullmatch(clean):
        if match["pattern"] not in PATTERNS:
            raise refused(match["pattern"], f"one of the patterns {', '.join(PATTERNS)}", "correct the pattern's name")
        return Clamp(int(match["layer"]), int(match["head"]), match["pattern"], _steps(clean, match))
    if match := _SCALE.fullmatch(clean):
        factor = _finite(clean, match["factor"], "a scale with a finite factor")
        layer, head = (None if match[name] is None else int(match[name]) for name in ("layer", "head"))
        return Scale(layer, head, factor, _steps(clean, match))
    if match := _KICK.fullmatch(clean):
        size = _finite(clean, match["size"], "a kick of a finite size")
        if not size:
            raise refused(
                clean, "a kick (noise added to the weights) of a size > 0", "remove the kick, or raise its size"
            )
        return Kick(size, int(match["step"]))
    raise refused(clean or text, _FORMS, 'write for example "freeze attention.query 0..500; kick 0.1 at 300"')


def _finite(text: str, digits: str, expected: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise refused(text, expected, "write a number that is not infinite")
    return number


def _steps(text: str, match: re.Match[str]) -> Steps:
    start, until = int(match["start"]), None if match["until"] is None else int(match["until"])
    if until is not None and until <= start:
        raise refused(
            text, "steps A..B with A < B, or A.. up to the end", "exchange A and B, or remove the intervention"
        )
    return Steps(start, until)


def _digits(number: float) -> str:
    return f"{number:.15g}"


def refused(given: object, expected: str, fix: str) -> SpecError:
    """Builds the error for an intervention that is not valid, or that the model does not support."""
    return SpecError(INTERVENTION, given=str(given), expected=expected, fix=fix)
