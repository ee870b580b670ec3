"""The verdict on a claim: supported, refuted or undecided, from the trainings in the ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
from rich.console import Console

from attnsweep.orchestrator.analysis.evidence import (
    above,
    below,
    median_interval,
    medians_not_ordered,
    medians_ordered,
    ordered,
)
from attnsweep.orchestrator.analysis.tables import to_json
from attnsweep.orchestrator.analysis.verdict_rows import Row, Sample, by_group, is_judged, last_step, read_rows, sample
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.claim import Claim
from attnsweep.search_spaces.confidence_sequence import sequential_interval
from attnsweep.search_spaces.statement import Quantity, Statement

Decision: TypeAlias = Literal["supported", "refuted", "undecided"]
_MAX_E_VALUE = 1e12
"""Larger ones are reported as this value."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """For (`pro`) and against (`contra`) a claim or statement: logarithms of e-values."""

    pro: float
    contra: float

    def decision(self, confidence: float) -> Decision:
        threshold = -np.log(1 - confidence)
        return "supported" if self.pro >= threshold else "refuted" if self.contra >= threshold else "undecided"

    def __str__(self) -> str:
        """The larger one: `evidence 31 for` is an e-value of 31 for the claim."""
        side = "for" if self.pro >= self.contra else "against"
        return f"evidence {e_value(max(self.pro, self.contra)):.3g} {side}"


@dataclass(frozen=True, slots=True)
class Measured:
    """A rate or median of `n` trainings of one group, with its interval; `is_value` marks the median of a metric."""

    group: str
    value: float
    low: float
    high: float
    n: int
    is_value: bool = False

    def __str__(self) -> str:
        ends = (self.value, self.low, self.high)
        value, low, high = (f"{number:.3g}" if self.is_value else _short(number) for number in ends)
        return f"{self.group} {value} [{low}, {high}] of {self.n}"


@dataclass(frozen=True, slots=True)
class Stated:
    """One statement, what was measured for its one or two sides, and the evidence."""

    text: str
    measured: tuple[Measured, ...]
    evidence: Evidence


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the trainings decide on a claim.

    Attributes:
        decision: That of the first evaluation (look) that decided, else `undecided`.
        looks: The evidence of each evaluation, by the number of trainings that each group had.
        statements: With their evidence at the last evaluation.
        n_failed: Trainings that failed; they count as if they had not been drawn.
    """

    claim: Claim
    decision: Decision
    looks: Mapping[int, Evidence]
    statements: tuple[Stated, ...]
    n_failed: int

    @property
    def n_trainings(self) -> int:
        """Of all groups, at the last evaluation; 0 before the first."""
        return max(self.looks, default=0) * len(self.claim.groups)

    def to_json(self) -> str:
        """One line."""

        def sides(evidence: Evidence) -> dict[str, float]:
            return {"for": e_value(evidence.pro), "against": e_value(evidence.contra)}

        stated = [{"text": each.text, "measured": each.measured, **sides(each.evidence)} for each in self.statements]
        looks = [{"trainings_each": n, **sides(evidence)} for n, evidence in self.looks.items()]
        counts = {"verdict": self.decision, "trainings": self.n_trainings, "failed": self.n_failed}
        return to_json({"claim": self.claim.model_dump(mode="json"), **counts, "statements": stated, "looks": looks})

    def print(self, console: Console) -> None:
        claim = self.claim
        lines = [f"{self.decision}: {claim.claim}", f" source: {claim.source}"]
        for each in self.statements:
            measured = ", ".join(map(str, each.measured))
            lines.append(f" {each.text}: {each.evidence.decision(claim.confidence)}; {measured}; {each.evidence}")
        failed = f", {self.n_failed} failed" if self.n_failed else ""
        last = "".join(f"; {evidence}" for evidence in [*self.looks.values()][-1:])
        lines.append(f" after {self.n_trainings} trainings of a budget of {claim.budget}{failed}{last}")
        for line in lines:
            console.print(line, soft_wrap=True, markup=False, highlight=False)


def e_value(log: float) -> float:
    """From its logarithm, capped for display."""
    return float(np.exp(min(log, np.log(_MAX_E_VALUE))))


def read_verdict(directory: SweepDirectory, claim: Claim) -> Verdict:
    return verdict(claim, read_rows(Ledger(directory.place), claim), directory.stages)


def verdict(claim: Claim, trainings: pa.Table, sizes: Sequence[int]) -> Verdict:
    """`sizes`: the number of trainings of each group at each evaluation."""
    rows = by_group(claim, trainings)
    n_ended = min(len(group_rows) for group_rows in rows.values())
    looks: dict[int, Evidence] = {}
    decision: Decision = "undecided"
    for n in sizes:
        if n > n_ended or decision != "undecided":
            break
        looks[n] = combined([_weighed(statement, rows, n) for statement in claim.statements])
        decision = looks[n].decision(claim.confidence)
    n = max(looks, default=0)
    return Verdict(
        claim=claim,
        decision=decision,
        looks=looks,
        statements=tuple(_stated(each, rows, n, claim.confidence) for each in claim.statements if looks),
        n_failed=sum(not is_judged(row) for group in rows.values() for row in group[:n]),
    )


def combined(evidence: Sequence[Evidence]) -> Evidence:
    """For a claim the smallest e-value of its statements, against it their mean."""
    contra = np.array([statement.contra for statement in evidence])
    mean = float(contra.max() + np.log(np.mean(np.exp(contra - contra.max()))))
    return Evidence(min(statement.pro for statement in evidence), mean)


def _weighed(statement: Statement, rows: Mapping[str, list[Row]], n: int) -> Evidence:
    """Of the first `n` trainings of each group."""
    sides = [(side, rows[side.group][:n]) for side in statement.quantities]

    def weigh(is_pro: bool) -> Evidence:
        # Where steps are known up to an interval, each side takes the ends that weaken this evidence: soonest steps
        # make a rate the largest and a median the smallest that it may be.
        is_lower_soonest = (statement.kind == "rate") == is_pro
        samples = [sample(side, own, soonest=(side is statement.lower) == is_lower_soonest) for side, own in sides]
        if len(samples) == 1:
            return _against_number(statement, samples[0])
        (lower, upper), (lower_last, upper_last) = samples, [last_step(side, own) for side, own in sides]
        return _in_order(statement, lower, upper, lower_last, upper_last)

    return Evidence(weigh(True).pro, weigh(False).contra)


def _in_order(statement: Statement, lower: Sample, upper: Sample, lower_last: float, upper_last: float) -> Evidence:
    """For a statement that compares the rates or medians of two groups."""
    lower_factor, upper_factor = statement.lower_factor, statement.upper_factor
    if statement.kind == "rate":
        n = min(lower.size, upper.size)
        k_lower, k_upper, factor = int(lower[:n].sum()), int(upper[:n].sum()), upper_factor / lower_factor
        return Evidence(ordered(k_lower, k_upper, n, factor), ordered(k_upper, k_lower, n, 1 / factor))
    lower, upper = lower_factor * lower, upper_factor * upper
    return Evidence(
        medians_ordered(lower, upper, upper_factor * upper_last),
        medians_not_ordered(lower, upper, lower_factor * lower_last),
    )


def _against_number(statement: Statement, sample: Sample) -> Evidence:
    """For a statement that compares one rate or median with a number."""
    bound, is_above = statement.bound, statement.upper is not None
    assert bound is not None
    if statement.kind == "median":  # is below the bound if more than half of the trainings are
        sample, bound, is_above = sample <= bound if is_above else sample < bound, 0.5, not is_above
    k, n = int(sample.sum()), sample.size
    higher, lower = float(above(k, n, bound)), float(below(k, n, bound))
    return Evidence(higher, lower) if is_above else Evidence(lower, higher)


def _stated(statement: Statement, rows: Mapping[str, list[Row]], n: int, confidence: float) -> Stated:
    measured = tuple(_measured(side, rows[side.group][:n], confidence) for side in statement.quantities)
    return Stated(statement.text, measured, _weighed(statement, rows, n))


def _measured(quantity: Quantity, rows: Sequence[Row], confidence: float) -> Measured:
    latest, soonest = (sample(quantity, rows, soonest=each) for each in (False, True))
    n = latest.size
    if quantity.kind == "rate":
        low, high = (sequential_interval(int(each.sum()), n, 1 - confidence) for each in (latest, soonest))
        return Measured(quantity.group, int(latest.sum()) / max(n, 1), low[0], high[1], n)
    is_value = quantity.what == "value"
    low, high = (median_interval(each, confidence, -np.inf if is_value else 0.0) for each in (soonest, latest))
    median = float(np.sort(latest)[(n - 1) // 2]) if n else np.inf
    return Measured(quantity.group, median, low[0], high[1], n, is_value)


def _short(value: float) -> str:
    return "never" if np.isinf(value) else f"{value:.0f}" if value > 1 else f"{value:.2f}"
