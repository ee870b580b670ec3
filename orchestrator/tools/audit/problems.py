"""What an audit finds, as text and JSON."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Self, TypeAlias

from rich.console import Console

from attnsweep.orchestrator.analysis.labels import clipped
from attnsweep.workloads.errors import UserError

COPIED = "remove the files that were copied into the folders trainings, curves and heads"
RESTORE = "restore the folders trainings, curves and heads from a copy of the directory"
RESUME = "continue with: attnsweep resume DIR"

Counts: TypeAlias = Mapping[str, int | None]
"""`None` for a number that is unknown."""
Fault: TypeAlias = tuple[str, str, str]
"""What is wrong, what the user can do about it, and the trial, training, run or sweep that has it."""

_SHOWN, _MAX_CHARACTERS = 3, 300
_STATES = {
    True: "finished",
    False: "not finished (it runs, or was interrupted): missing parts are no fault",
    None: "its record cannot be read",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault, or many of one kind."""

    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}; {self.fix}"

    @classmethod
    def of(cls, error: UserError, fix: str | None = None) -> Self:
        """Without `fix`, the error's own."""
        return cls(clipped(f"{error.subject}: {error.given}", _MAX_CHARACTERS), fix or error.fix)


@dataclass(frozen=True, slots=True)
class Check:
    line: str
    problems: Sequence[Problem] = ()


def grouped(faults: Iterable[Fault]) -> list[Problem]:
    """One problem for all faults of a kind, with their number and the first few."""
    cases: dict[tuple[str, str], list[str]] = {}
    for what, fix, case in faults:
        cases.setdefault((what, fix), []).append(case)
    problems = []
    for (what, fix), some in cases.items():
        first = ", ".join(clipped(case, _MAX_CHARACTERS) for case in some[:_SHOWN])
        more = f" and {len(some) - _SHOWN:,} more" if len(some) > _SHOWN else ""
        problems.append(Problem(f"{len(some)} {what}: {first}{more}", fix))
    return problems


@dataclass(frozen=True, kw_only=True)
class Audit:
    """All checks of one sweep.

    Attributes:
        sweep: `None` if the record cannot be read, as `finished`.
        finished: Whether the budget is spent; missing trainings are a fault only then.
        trials: How many should be trained (asked), are trained, are told to the study, and are logged in MLflow,
            without those that the workload refused.
    """

    directory: str
    sweep: str | None
    finished: bool | None
    trials: Counts
    checks: Sequence[Check]

    @property
    def problems(self) -> list[Problem]:
        return [problem for check in self.checks for problem in check.problems]

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"clean": not self.problems}, allow_nan=False)

    def print(self, console: Console) -> None:
        lines = [f"{self.sweep or self.directory}: {_STATES[self.finished]}"]
        lines += [f"{'FAULT' if check.problems else 'ok   '}  {check.line}" for check in self.checks]
        lines += ["", *(f"- {problem}" for problem in self.problems)] if self.problems else ["clean"]
        for line in lines:
            console.print(line, soft_wrap=True, markup=False)


def in_one_line(counts: Counts) -> str:
    """Such as `asked 128 = trained 128`, or with commas if not all are equal."""
    words = (f"{name} {'?' if count is None else f'{count:,}'}" for name, count in counts.items())
    return (" = " if len({*counts.values()}) == 1 else ", ").join(words)
