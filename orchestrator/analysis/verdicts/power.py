"""Forecasts by simulation how many trainings a verdict takes if the claim holds with some margin."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.verdicts.rows import Sample
from attnsweep.orchestrator.analysis.verdicts.verdict import Evidence, together, weigh
from attnsweep.search_spaces.claim import Claim
from attnsweep.search_spaces.statement import Quantity, Statement

MARGINS = (0.05, 0.1, 0.2, 0.4)
N_SIMULATED = 200
_LAST = 2**30
"""The step at which simulated trainings end; all have reached the goal by then."""


@dataclass(frozen=True, slots=True)
class Power:
    """How often and how soon a claim is supported if all its statements hold with a margin.

    Attributes:
        margin: How far a rate is on the right side of the number that it is compared with; for two groups, how far
            apart their rates are, around one half. For medians, the margin of the share of trainings that have reached
            the goal by the step.
        share: The share of simulated claims that are supported within the budget.
        n_median: The number of trainings, of all groups, by which half of the simulated claims are supported; `None` if
            fewer than half are.
        n_most: The number of trainings by which 90% are supported; `None` if fewer are.
    """

    margin: float
    share: float
    n_median: int | None
    n_most: int | None

    def line(self) -> str:
        """Formats the forecast as one line for people."""
        half, most = ("more than the budget" if n is None else f"{n:,}" for n in (self.n_median, self.n_most))
        return f" margin {self.margin:g}: {self.share:.0%} supported within the budget; half by {half}, 90% by {most}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def power(claim: Claim, n_simulated: int = N_SIMULATED) -> list[Power]:
    """Simulates verdicts on a claim that holds by a margin, for each margin at which all its rates are in 0..1."""
    return [
        _power(claim, margin, n_simulated)
        for margin in MARGINS
        if all(_has_room(statement, margin) for statement in claim.statements)
    ]


def _power(claim: Claim, margin: float, n_simulated: int) -> Power:
    rng = np.random.default_rng(0)
    sizes = list(_sizes(claim))
    took = np.array([_until(claim, margin, sizes, rng) for _ in range(n_simulated)]) * len(claim.groups)
    half, most = (np.quantile(took, share, method="inverted_cdf") for share in (0.5, 0.9))
    return Power(margin, float(np.mean(np.isfinite(took))), *(int(n) if np.isfinite(n) else None for n in (half, most)))


def _sizes(claim: Claim) -> Iterator[int]:
    n: int | None = claim.batch
    while n is not None:
        yield n
        n = claim.next_size(n)


def _until(claim: Claim, margin: float, sizes: Sequence[int], rng: np.random.Generator) -> float:
    """Simulates one verdict. Returns the number of trainings per group at which the claim is supported, or infinity."""
    drawn = [_drawn(statement, margin, sizes[-1], rng) for statement in claim.statements]
    for n in sizes:
        samples = zip(claim.statements, drawn, strict=True)
        evidence = together([_weighed(statement, sample, n) for statement, sample in samples])
        if evidence.decision(claim.confidence) != "undecided":
            return n if evidence.decision(claim.confidence) == "supported" else np.inf
    return np.inf


def _weighed(statement: Statement, drawn: dict[Quantity, NDArray[Any]], n: int) -> Evidence:
    return weigh(statement, lambda quantity: drawn[quantity][:n], lambda _: _LAST)


def _drawn(statement: Statement, margin: float, n: int, rng: np.random.Generator) -> dict[Quantity, Sample]:
    """Draws the results of `n` simulated trainings for each side of the statement."""
    if statement.kind == "rate":
        return {side: rng.random(n) < rate for side, rate in _rates(statement, margin)}
    return {side: np.exp(rng.normal(middle, 1, n)) for side, middle in _middles(statement, margin)}


def _rates(statement: Statement, margin: float) -> Iterator[tuple[Quantity, float]]:
    lower, upper, bound = statement.lower, statement.upper, statement.bound
    if bound is not None:
        yield statement.quantities[0], bound - margin if upper is None else bound + margin
        return
    assert lower is not None
    assert upper is not None
    # The two rates lie around one half, because the share of a sample varies most there.
    factor = statement.upper_factor / statement.lower_factor
    yield lower, factor / (1 + factor) - margin / 2
    yield upper, 1 / (1 + factor) + margin / 2


def _middles(statement: Statement, margin: float) -> Iterator[tuple[Quantity, float]]:
    """Yields each side of the statement with the log of a median at which the statement holds by the margin."""
    from scipy import special

    apart = float(special.ndtri(0.5 + margin))
    bound = statement.bound
    for side, sign, factor in (
        (statement.lower, -1, statement.lower_factor),
        (statement.upper, 1, statement.upper_factor),
    ):
        if side is not None:
            yield side, np.log(bound or 1e3 / factor) + sign * apart


def _has_room(statement: Statement, margin: float) -> bool:
    if statement.kind == "median":
        return margin < 0.5
    return all(0 < rate < 1 for _, rate in _rates(statement, margin))
