"""Interventions: what is done to a training while it runs, as the text of its parameter `intervention`.

Such as `freeze attention.query 0..500; clamp 1:0 previous_token 0..; kick 0.1 at 300`. Steps A..B are those from A to
before B; A.. is up to the end. Nothing here imports PyTorch.
"""

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from attnsweep.workloads.errors import SpecError

PATTERNS = ("previous_token", "uniform", "none")
"""What a head's attention may be clamped to: the token before the query (the first token: itself), all keys that the
query sees, or no key, so that the head writes nothing."""
INTERVENTION = "intervention"
"""The parameter that has the text."""
CLAMP = "clamp_H"
"""The buffer of an attention layer with, for each head, 0 or the `pattern_number` that it is clamped to."""

_FORMS = "freeze NAME A..B, clamp LAYER:HEAD PATTERN A..B, or kick SIZE at STEP, joined by ;"
_STEPS = r"(?P<start>\d{1,10})\.\.(?P<until>\d{1,10})?"
_FREEZE = re.compile(rf"freeze\s+(?P<parameter>[A-Za-z_][\w.]*)\s+{_STEPS}")
_CLAMP = re.compile(rf"clamp\s+(?P<layer>\d{{1,4}}):(?P<head>\d{{1,4}})\s+(?P<pattern>\w+)\s+{_STEPS}")
_KICK = re.compile(r"kick\s+(?P<size>\d+\.?\d*(?:[eE][-+]?\d+)?)\s+at\s+(?P<step>\d{1,10})")


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps from `start` to before `until`; to the end if that is `None`."""

    start: int
    until: int | None

    def __contains__(self, step: int) -> bool:
        return self.start <= step and (self.until is None or step < self.until)

    def __str__(self) -> str:
        return f"{self.start}..{'' if self.until is None else self.until}"


@dataclass(frozen=True, slots=True)
class Freeze:
    """Parameters that do not move.

    Attributes:
        parameter: Part of their names, from dot to dot: `attention.query` is `blocks.0.attention.query.weight` too.
        steps: Which updates leave them where they are. The optimizer's averages go on.
    """

    parameter: str
    steps: Steps

    def names(self, parameter: str) -> bool:
        """Whether a parameter of this name is frozen."""
        return f".{self.parameter}." in f".{parameter}."

    def __str__(self) -> str:
        return f"freeze {self.parameter} {self.steps}"


@dataclass(frozen=True, slots=True)
class Clamp:
    """A head whose attention is fixed.

    Attributes:
        layer, head: Its numbers, as in the ledger's `heads`.
        pattern: A name among `PATTERNS`.
        steps: When; the probe at a step of them sees it too.
    """

    layer: int
    head: int
    pattern: str
    steps: Steps

    def __str__(self) -> str:
        return f"clamp {self.layer}:{self.head} {self.pattern} {self.steps}"


@dataclass(frozen=True, slots=True)
class Kick:
    """Normal noise that is added to all parameters but frozen ones.

    Attributes:
        size: The norm of the noise, relative to that of the parameters.
        step: Before which step, and after the probe there.
    """

    size: float
    step: int

    def __str__(self) -> str:
        return f"kick {self.size:g} at {self.step}"


Intervention = Freeze | Clamp | Kick


@functools.cache
def interventions_of(text: str | None) -> tuple[Intervention, ...]:
    """The interventions of a text, in its order; none of null.

    Raises:
        SpecError: If it is no such text.
    """
    return () if text is None else tuple(map(_one, text.split(";")))


def check_interventions(text: str | None, n_steps: int, optimizer: str) -> None:
    """Checks that they fit the length of a training, and its optimizer.

    Raises:
        SpecError: If not.
    """
    found = interventions_of(text)
    if found and optimizer == "lbfgs":
        raise SpecError(
            "intervention", given=f"{text} with optimizer=lbfgs", expected="sgd, adam or adamw", fix="change optimizer"
        )
    for each in found:
        last = each.step + 1 if isinstance(each, Kick) else max(each.steps.start + 1, each.steps.until or 0)
        if last > n_steps:
            raise SpecError(
                "intervention",
                given=str(each),
                expected=f"steps within 0..{n_steps}, those of a training with n_steps={n_steps}",
                fix="lower its steps, or raise n_steps",
            )


def intervene(
    *,
    parameter: str | None = None,
    freeze: tuple[int, int | None] | None = None,
    head: str | None = None,
    clamp: str | None = None,
    steps: tuple[int, int | None] = (0, None),
    kick: float | None = None,
    at: int | None = None,
) -> str:
    """The text of one intervention. Several are joined: `"; ".join([...])`.

    Args:
        parameter, freeze: Part of the names of parameters, from dot to dot, and the steps at which they do not move.
        head, clamp, steps: A head, `LAYER:HEAD`, the pattern that its attention is fixed to, and the steps.
        kick, at: The size of a kick relative to the parameters' norm, and its step.

    Raises:
        SpecError: If it is not one intervention, or no valid one.
    """
    texts = []
    if parameter is not None and freeze is not None:
        texts.append(f"freeze {parameter} {Steps(*freeze)}")
    if head is not None and clamp is not None:
        texts.append(f"clamp {head} {clamp} {Steps(*steps)}")
    if kick is not None and at is not None:
        texts.append(f"kick {kick:g} at {at}")
    n_given = sum(each is not None for each in (parameter, freeze, head, clamp, kick, at))
    if len(texts) != 1 or n_given != 2:  # Each intervention has exactly two arguments.
        raise SpecError(
            "intervene",
            given=f"{n_given} of parameter, freeze, head, clamp, kick and at",
            expected="one pair: parameter and freeze, head and clamp, or kick and at",
            fix='join several with "; ".join([...])',
        )
    (found,) = interventions_of(texts[0])
    return str(found)


def pattern_number(pattern: str) -> int:
    """The number of a name among `PATTERNS`, from 1."""
    return PATTERNS.index(pattern) + 1


def boundaries_of(interventions: Iterable[Intervention]) -> frozenset[int]:
    """The steps before which something changes."""
    found: set[int] = set()
    for each in interventions:
        ends = (each.step,) if isinstance(each, Kick) else (each.steps.start, each.steps.until)
        found.update(step for step in ends if step is not None)
    return frozenset(found)


def _one(text: str) -> Intervention:
    clean = text.strip()
    if found := _FREEZE.fullmatch(clean):
        return Freeze(found["parameter"], _steps(clean, found))
    if found := _CLAMP.fullmatch(clean):
        if found["pattern"] not in PATTERNS:
            raise _refused(found["pattern"], f"one of {', '.join(PATTERNS)}", "correct its name")
        return Clamp(int(found["layer"]), int(found["head"]), found["pattern"], _steps(clean, found))
    if found := _KICK.fullmatch(clean):
        if not float(found["size"]):
            raise _refused(clean, "a kick of a size > 0", "remove it, or raise its size")
        return Kick(float(found["size"]), int(found["step"]))
    raise _refused(clean or text, _FORMS, 'such as "freeze attention.query 0..500; kick 0.1 at 300"')


def _steps(text: str, found: re.Match[str]) -> Steps:
    start, until = int(found["start"]), None if found["until"] is None else int(found["until"])
    if until is not None and until <= start:
        raise _refused(text, "steps A..B with A < B, or A.. up to the end", "exchange the two, or remove it")
    return Steps(start, until)


def _refused(given: str, expected: str, fix: str) -> SpecError:
    return SpecError(INTERVENTION, given=given, expected=expected, fix=fix)
