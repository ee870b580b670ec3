"""The findings of an audit, printed for people and as JSON."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Self, TypeAlias

from rich.console import Console

from attnsweep.orchestrator.analysis.labels import clipped
from attnsweep.workloads.errors import UserError

_SHOWN, _MOST_CHARACTERS = 3, 300
_STATES = {
    True: "finished",
    False: "not finished (it runs, or was interrupted): missing parts are no fault",
    None: "finished or not is unknown, its record cannot be read: missing parts are no fault",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault, or many of one kind: what is wrong, and what the user can do about it."""

    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}; {self.fix}"

    @classmethod
    def of(cls, error: UserError, fix: str | None = None) -> Self:
        """Without `fix`, the error's own."""
        return cls(clipped(f"{error.subject}: {error.given}", _MOST_CHARACTERS), fix or error.fix)


Fault: TypeAlias = tuple[Problem, str]
"""A kind of fault, and the name of the trial, training, run or sweep that has it."""


@dataclass(frozen=True, slots=True)
class Check:
    line: str
    problems: tuple[Problem, ...] = ()


def grouped(faults: Iterable[Fault]) -> tuple[Problem, ...]:
    """One problem for all faults of a kind: their number and the first few."""
    cases: dict[Problem, list[str]] = {}
    for kind, case in faults:
        cases.setdefault(kind, []).append(case)
    return tuple(Problem(f"{len(some)} {kind.what}: {first_few(some)}", kind.fix) for kind, some in cases.items())


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The results of all checks.

    Attributes:
        directory: The sweep's directory, as the user gave it.
        sweep: The sweep's name; `None` if its record cannot be read.
        finished: Whether the sweep's budget is spent; `None` if that cannot be read. Missing trainings are a fault only
            in a finished sweep.
        counts: The number of trials that should be trained (asked), are trained, are reported to the study (told), and
            are logged in MLflow, without trials that the workload refused; `None` for a number that is unknown.
        checks: The checks, in the order in which they are printed.
    """

    directory: str
    sweep: str | None
    finished: bool | None
    counts: Mapping[str, int | None]
    checks: tuple[Check, ...]

    @property
    def problems(self) -> list[Problem]:
        return [problem for check in self.checks for problem in check.problems]

    def to_json(self) -> str:
        content: dict[str, object] = {
            "directory": self.directory,
            "sweep": self.sweep,
            "finished": self.finished,
            "clean": not self.problems,
            "trials": dict(self.counts),
            "checks": [asdict(check) for check in self.checks],
        }
        return json.dumps(content, allow_nan=False)

    def print(self, console: Console) -> None:
        lines = [f"{self.sweep or self.directory}: {_STATES[self.finished]}"]
        lines += [f"{'FAULT' if check.problems else 'ok   '}  {check.line}" for check in self.checks]
        lines += ["", *(f"- {problem}" for problem in self.problems)] if self.problems else ["clean"]
        for line in lines:
            console.print(line, soft_wrap=True, markup=False)


def in_one_line(counts: Mapping[str, int | None]) -> str:
    """With `=`, `>` or `<` between neighbors: `asked 128 = trained 128 > told 127`; `, told ?` if unknown."""
    words = [f"{name} {'?' if count is None else f'{count:,}'}" for name, count in counts.items()]
    signs = ["", *(_sign(a, b) for a, b in pairwise(counts.values()))]
    return "".join(f"{sign}{word}" for sign, word in zip(signs, words, strict=True))


def _sign(a: int | None, b: int | None) -> str:
    if a is None or b is None:
        return ", "
    return " = " if a == b else " > " if a > b else " < "


def first_few(cases: Sequence[str]) -> str:
    """Such as `3/0, 3/1, 3/2 and 4 more`."""
    more = len(cases) - _SHOWN
    return ", ".join(clipped(case, _MOST_CHARACTERS) for case in cases[:_SHOWN]) + (
        f" and {more:,} more" if more > 0 else ""
    )
