"""The verdict on a claim: supported, refuted or undecided, by the trainings that there are."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from rich.console import Console

from attnsweep.orchestrator.analysis.verdicts.evidence import (
    Numbers,
    above,
    below,
    median_interval,
    medians_not_ordered,
    medians_ordered,
    ordered,
)
from attnsweep.orchestrator.analysis.verdicts.rows import Row, Sample, by_group, end, is_judged, read_rows, sample
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.claim import Claim
from attnsweep.search_spaces.confidence_sequence import sequential_interval
from attnsweep.search_spaces.statement import Quantity, Statement

Decision: TypeAlias = Literal["supported", "refuted", "undecided"]
_MOST = 1e12
"""An e-value above this says no more."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """For and against something: natural logarithms of e-values."""

    pro: float
    contra: float

    def decision(self, confidence: float) -> Decision:
        """What it decides; it is never large both ways."""
        least = -np.log(1 - confidence)
        return "supported" if self.pro >= least else "refuted" if self.contra >= least else "undecided"

    def as_json(self) -> dict[str, float]:
        """The e-values."""
        return {"for": e_value(self.pro), "against": e_value(self.contra)}


@dataclass(frozen=True, slots=True)
class Measured:
    """A rate or a median of a group, with its interval, which is valid at all times.

    Attributes:
        group: The group.
        value, low, high: The number and its interval.
        n: Of how many trainings.
        is_value: Whether it is the median of a metric, not a rate or a step.
    """

    group: str
    value: float
    low: float
    high: float
    n: int
    is_value: bool = False

    def __str__(self) -> str:
        ends = (self.value, self.low, self.high)
        value, low, high = (f"{each:.3g}" if self.is_value else _short(each) for each in ends)
        return f"{self.group} {value} [{low}, {high}] of {self.n}"


@dataclass(frozen=True, slots=True)
class Stated:
    """A statement, what was measured of its sides, and the evidence."""

    text: str
    measured: tuple[Measured, ...]
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Look:
    """The evidence on a claim when each group had this many trainings."""

    n: int
    evidence: Evidence


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is known of a claim.

    Attributes:
        claim: The claim.
        decision: Of the first look that decided, else `undecided`.
        looks: Up to that one.
        statements: At the last of them.
        n_failed: Trainings that failed, and count as if they had not been drawn.
    """

    claim: Claim
    decision: Decision
    looks: tuple[Look, ...]
    statements: tuple[Stated, ...]
    n_failed: int

    @property
    def n_trainings(self) -> int:
        """Of all groups, at the last look."""
        return self.looks[-1].n * len(self.claim.groups) if self.looks else 0

    def to_json(self) -> str:
        """One line of JSON."""
        content = {
            "claim": self.claim.model_dump(mode="json"),
            "verdict": self.decision,
            "trainings": self.n_trainings,
            "failed": self.n_failed,
            "statements": [_statement_json(each) for each in self.statements],
            "looks": [{"trainings_each": each.n, **each.evidence.as_json()} for each in self.looks],
        }
        return json.dumps(content, allow_nan=False)

    def lines(self) -> list[str]:
        """For people."""
        claim = self.claim
        lines = [f"{self.decision}: {claim.claim}", f" source: {claim.source}"]
        for each in self.statements:
            decision = each.evidence.decision(claim.confidence)
            lines.append(f" {each.text}: {decision}; {', '.join(map(str, each.measured))}; {said(each.evidence)}")
        failed = f", {self.n_failed} failed" if self.n_failed else ""
        last = f"; {said(self.looks[-1].evidence)}" if self.looks else ""
        lines.append(f" after {self.n_trainings} trainings of a budget of {claim.budget}{failed}{last}")
        return lines

    def print(self, console: Console) -> None:
        """Prints it."""
        for line in self.lines():
            console.print(line, soft_wrap=True, markup=False, highlight=False)


def e_value(log: float) -> float:
    """The e-value of its logarithm, at most 1e12."""
    return float(np.exp(min(log, np.log(_MOST))))


def said(evidence: Evidence) -> str:
    """The larger side, for people: `evidence 31 for`."""
    side = "for" if evidence.pro >= evidence.contra else "against"
    return f"evidence {e_value(max(evidence.pro, evidence.contra)):.3g} {side}"


def read_verdict(directory: SweepDirectory, claim: Claim) -> Verdict:
    """The verdict by the rows that a claim's sweep has."""
    return verdict(claim, read_rows(Ledger(directory.place), claim), directory.stages)


def verdict(claim: Claim, trainings: pa.Table, sizes: Sequence[int]) -> Verdict:
    """The verdict on a claim. It is a function of the rows: a resumed run finds the one of an undisturbed one.

    Args:
        claim: The claim.
        trainings: Its sweep's rows: `rows.read_rows`.
        sizes: The trainings of each group at each look.

    Raises:
        UserError: If the rows are not of the claim's groups.
    """
    rows = by_group(claim, trainings)
    n_ended = min(len(each) for each in rows.values())
    looks: list[Look] = []
    decision: Decision = "undecided"
    for n in sizes:
        if n > n_ended or decision != "undecided":
            break
        evidence = together([_weighed(each, rows, n) for each in claim.statements])
        looks.append(Look(n, evidence))
        decision = evidence.decision(claim.confidence)
    n = looks[-1].n if looks else 0
    return Verdict(
        claim=claim,
        decision=decision,
        looks=tuple(looks),
        statements=tuple(_stated(each, rows, n, claim.confidence) for each in claim.statements) if looks else (),
        n_failed=sum(not is_judged(each) for group in rows.values() for each in group[:n]),
    )


def together(evidence: Sequence[Evidence]) -> Evidence:
    """The evidence that all statements hold: the least for one; against it: the mean, which is an e-value too."""
    contra = np.array([each.contra for each in evidence])
    mean = float(contra.max() + np.log(np.mean(np.exp(contra - contra.max()))))
    return Evidence(min(each.pro for each in evidence), mean)


def weigh(
    statement: Statement, sample_of: Callable[[Quantity], Sample], end_of: Callable[[Quantity], float]
) -> Evidence:
    """The evidence for a statement and against it.

    Args:
        statement: The statement.
        sample_of: The sample of each of its sides.
        end_of: The last step at which each side could have come.
    """
    lower, upper = (None if each is None else sample_of(each) for each in (statement.lower, statement.upper))
    if lower is None or upper is None:
        return _weigh_one(statement, statement.quantities[0], sample_of)
    if statement.kind == "rate":
        n = min(lower.size, upper.size)
        k, other = int(lower[:n].sum()), int(upper[:n].sum())
        factor = statement.upper_factor / statement.lower_factor
        return Evidence(ordered(k, other, n, factor), ordered(other, k, n, 1 / factor))
    assert statement.lower is not None
    assert statement.upper is not None
    lower, upper = statement.lower_factor * lower, statement.upper_factor * upper
    return Evidence(
        medians_ordered(lower, upper, statement.upper_factor * end_of(statement.upper)),
        medians_not_ordered(lower, upper, statement.lower_factor * end_of(statement.lower)),
    )


def _weigh_one(statement: Statement, quantity: Quantity, sample_of: Callable[[Quantity], Sample]) -> Evidence:
    """Of a rate or a median and a number. A median is below a number if more than half came before it."""
    sample, bound, is_above = sample_of(quantity), statement.bound, statement.upper is not None
    assert bound is not None
    if quantity.kind == "median":
        sample, bound, is_above = sample <= bound if is_above else sample < bound, 0.5, not is_above
    k, n = int(sample.sum()), sample.size
    higher, lower = float(above(k, n, bound)), float(below(k, n, bound))
    return Evidence(higher, lower) if is_above else Evidence(lower, higher)


def _weighed(statement: Statement, rows: Mapping[str, list[Row]], n: int) -> Evidence:
    return weigh(
        statement,
        lambda each: sample(each, rows[each.group][:n]),
        lambda each: end(each, rows[each.group][:n]),
    )


def _stated(statement: Statement, rows: Mapping[str, list[Row]], n: int, confidence: float) -> Stated:
    measured = tuple(_measured(each, sample(each, rows[each.group][:n]), confidence) for each in statement.quantities)
    return Stated(statement.text, measured, _weighed(statement, rows, n))


def _measured(quantity: Quantity, of: Sample, confidence: float) -> Measured:
    n = of.size
    if quantity.kind == "rate":
        k = int(of.sum())
        return Measured(quantity.group, k / max(n, 1), *sequential_interval(k, n, 1 - confidence), n)
    middle: Numbers = np.sort(of)
    is_value = quantity.what == "value"
    least, most = median_interval(of, confidence, -np.inf if is_value else 0.0)
    return Measured(quantity.group, float(middle[(n - 1) // 2]) if n else np.inf, least, most, n, is_value)


def _statement_json(stated: Stated) -> dict[str, Any]:
    return {
        "text": stated.text,
        "measured": [
            {"group": each.group, "n": each.n}
            | {name: _or_none(getattr(each, name)) for name in ("value", "low", "high")}
            for each in stated.measured
        ],
        **stated.evidence.as_json(),
    }


def _or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _short(value: float) -> str:
    return "never" if np.isinf(value) else f"{value:.0f}" if value > 1 else f"{value:.2f}"
