"""How often claims are supported and refuted, and after how many trainings, where the truth is known.

    python benchmarks/verdicts.py [--simulated 1000] [--budget 512] [--out FILE.json]

Each row is one statement with true rates, or with medians of log-normal steps, simulated with looks as `attnsweep
verify` takes them (batches of 16, later ones a quarter of what there is). `border` rows are false, as little as can
be: the statement's two sides are equal, so `supported` is an error, of at most 0.05, and so is `refuted` where the
statement is false as an inequality alone. `trainings` is the median, of all groups, where half are decided. `intervals`
is the share that two intervals of 97.5% which do not overlap would support, with the median of their trainings.
"""

import math
from typing import Any

import numpy as np
from harness import main
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.verdict import Decision, weigh
from attnsweep.search_spaces.claim import Claim
from attnsweep.search_spaces.confidence_sequence import sequential_interval

ONE, ORDER, TWICE = "rate(stuck, a) < 0.2", "rate(stuck, a) < rate(stuck, b)", "rate(stuck, a) > 2 * rate(stuck, b)"
MEDIAN, MEDIANS = "median(solved, a) < 100", "median(solved, a) < median(solved, b)"
CASES: tuple[tuple[str, float, float, str], ...] = (
    (ONE, 0.2, 0, "border"),
    (ONE, 0.05, 0, "true"),
    (ONE, 0.4, 0, "false"),
    (ORDER, 0.5, 0.5, "border"),
    (ORDER, 0.05, 0.05, "border"),
    (ORDER, 0.3, 0.6, "true"),
    (ORDER, 0.6, 0.3, "false"),
    (TWICE, 0.4, 0.2, "border"),
    (TWICE, 0.8, 0.2, "true"),
    (MEDIAN, 100, 0, "border"),
    (MEDIAN, 60, 0, "true"),
    (MEDIANS, 100, 100, "border"),
    (MEDIANS, 100, 200, "true"),
    (MEDIANS, 200, 100, "false"),
)
END = 400
"""The step at which trainings end; a few have not come by then."""


def measure(*, simulated: int = 1000, budget: int = 512) -> dict[str, Any]:
    """Simulates each case so often."""
    rng = np.random.default_rng(0)
    return {"rows": [row(*case, simulated, budget, rng) for case in CASES]}


def row(text: str, a: float, b: float, truth: str, simulated: int, budget: int, rng: np.random.Generator) -> Any:
    """One case."""
    groups = {group: {"init_sigma": at} for at, group in ((0.1, "a"), (0.2, "b")) if f" {group})" in text}
    claim = Claim(
        name="c", claim="c", source="s", workload="category_pairs", groups=groups, states=(text,), budget=budget
    )
    sizes = [claim.batch]
    while (more := claim.next_size(sizes[-1])) is not None:
        sizes.append(more)
    is_rate = claim.statements[0].kind == "rate"
    found, plain = [], []
    for _ in range(simulated):
        drawn = {group: samples(value, sizes[-1], is_rate, rng) for group, value in (("a", a), ("b", b))}
        found.append(decided(claim, drawn, sizes))
        plain += [by_intervals(drawn, sizes)] if text == ORDER else []
    took = [n for decision, n in found if decision != "undecided"]
    shares = {each: sum(decision == each for decision, _ in found) / simulated for each in ("supported", "refuted")}
    return {
        "statement": text,
        "a": a,
        "b": b if len(groups) > 1 else None,
        "truth": truth,
        **shares,
        "trainings": float(np.median(took)) * len(groups) if 2 * len(took) > simulated else None,
        "intervals": float(np.mean(np.isfinite(plain))) if plain else None,
        "intervals_trainings": 2 * float(np.median(plain)) if plain and np.isfinite(np.median(plain)) else None,
    }


def samples(value: float, n: int, is_rate: bool, rng: np.random.Generator) -> NDArray[Any]:
    """Trainings of one group: true or not, or the step at which it came."""
    if is_rate:
        return rng.random(n) < value
    steps = np.round(value * np.exp(0.7 * rng.normal(size=n)) + 0.5)
    return np.where(steps > END, np.inf, steps)


def decided(claim: Claim, drawn: dict[str, NDArray[Any]], sizes: list[int]) -> tuple[Decision, int]:
    """The verdict, and the trainings of a group."""
    for n in sizes:
        evidence = weigh(claim.statements[0], lambda each: drawn[each.group][:n], lambda _: END)  # noqa: B023
        decision = evidence.decision(claim.confidence)
        if decision != "undecided":
            return decision, n
    return "undecided", sizes[-1]


def by_intervals(drawn: dict[str, NDArray[Any]], sizes: list[int]) -> float:
    """The trainings of a group after which the interval of `a` lies below that of `b`; infinite if never."""
    for n in sizes:
        (_, high), (low, _) = (sequential_interval(int(drawn[group][:n].sum()), n, 0.025) for group in ("a", "b"))
        if high < low:
            return n
    return math.inf


if __name__ == "__main__":
    main(measure)
