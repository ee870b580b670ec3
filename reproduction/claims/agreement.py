"""Tests whether two measurements of one number agree, with Holm's correction over the tests of a run.

A share of independent trainings is compared by Fisher's exact test. A rate over trials has Wilson's interval with
an effective number of trainings, which is recovered from its width; two such rates are compared by the score test. An
estimate is compared by the difference over its standard error, which is read from the sides of the two intervals that
face each other, as a side over z: an interval may reach farther to one side. Student's intervals are a little wider
than that, which makes the test a little conservative.

Source: Zou & Donner 2008, Stat. Med. 27 (variance from the facing sides of intervals).
"""

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attnsweep.reproduction.claims.claim import Claim, Stated

FAMILY_ERROR = 0.05
"""The largest probability that a run rejects at least one true claim."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A claim's number and its interval, as measured again on another seed.

    Attributes:
        value, low, high: The number and its interval, at the claim's level.
        n: The number of trainings, or of other samples, if it is known.
        k: The number of trainings with the property, for a share of independent trainings.
    """

    value: float
    low: float
    high: float
    n: int | None = None
    k: int | None = None


def p_value(claim: Claim, again: Measured) -> float:
    """Returns the probability that two measurements of the same true number differ at least as much as the claim and
    its repetition.
    """
    from scipy import stats

    if claim.kind == "share":
        assert claim.k is not None
        assert claim.n is not None
        assert again.k is not None
        assert again.n is not None
        table = np.array([[claim.k, claim.n - claim.k], [again.k, again.n - again.k]])
        return float(stats.fisher_exact(table)[1])
    z = float(stats.norm.ppf(0.5 + claim.level / 2))
    if claim.kind == "rate":
        n, m = effective_n(claim.value, claim.low, claim.high, z), effective_n(again.value, again.low, again.high, z)
        pooled = (n * claim.value + m * again.value) / (n + m)
        error = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
        difference = claim.value - again.value
    else:
        transform = math.log if claim.scale == "log" else float
        stated = Measured(value=claim.value, low=claim.low, high=claim.high)
        lower, upper = sorted((stated, again), key=lambda number: number.value)
        error = (
            math.hypot(transform(upper.value) - transform(upper.low), transform(lower.high) - transform(lower.value))
            / z
        )
        difference = transform(upper.value) - transform(lower.value)
    if error == 0.0:
        return float(difference == 0.0)
    return float(2 * stats.norm.sf(abs(difference) / error))


def holm(p_values: Sequence[float], family_error: float = FAMILY_ERROR) -> list[bool]:
    """Returns which hypotheses Holm's method rejects. With probability 1 - `family_error` it rejects no true one.

    Source: Holm 1979, Scand. J. Statist. 6. It holds for any dependence between the tests.
    """
    rejected = [False] * len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] > family_error / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected


def effective_n(share: float, low: float, high: float, z: float = 1.959964) -> float:
    """Returns the number of independent trainings whose Wilson interval is as wide as the interval given."""
    least, most = 1e-3, 1e9
    for _ in range(200):
        middle = math.sqrt(least * most)
        half = z * math.sqrt(share * (1 - share) / middle + z**2 / (4 * middle**2)) / (1 + z**2 / middle)
        least, most = (middle, most) if 2 * half > high - low else (least, middle)
    return math.sqrt(least * most)


@dataclass(frozen=True, slots=True)
class Tested:
    """A claim with its value on another seed, and the verdict on whether the two agree.

    Attributes:
        stated: The claim.
        again: The value on the other seed.
        p: The probability of values that differ as much, if both measure one number.
        agrees: Whether Holm's test over the claims of the run does not reject the claim.
    """

    stated: Stated
    again: Measured
    p: float
    agrees: bool


def verdicts(pairs: Sequence[tuple[Stated, Measured]]) -> list[Tested]:
    """Compares the claims of one run with their values on another seed, by tests with Holm's correction."""
    p_values = [p_value(stated.claim, again) for stated, again in pairs]
    rejected = holm(p_values)
    return [Tested(*pair, p, not is_rejected) for pair, p, is_rejected in zip(pairs, p_values, rejected, strict=True)]


def recorded(claims: Sequence[Stated], folder: Path) -> dict[str, list[Tested]]:
    """Reads the recorded verdicts of all earlier runs, by run.

    A run is a file of the folder, or the claims of a group that a page states twice, on two seeds (twins).
    """
    by_name = {stated.name: stated for stated in claims}
    runs = {}
    for path in sorted(folder.glob("*.toml")):
        rows = tomllib.loads(path.read_text())["again"]
        pairs = [(by_name[row.pop("claim")], Measured(**row)) for row in rows]
        runs[path.stem] = verdicts(pairs)
    for group in sorted({stated.group.name for stated in claims}):
        pairs = list(_twins(group, by_name))
        if pairs:
            runs[f"{group}, twice on its page"] = verdicts(pairs)
    return runs


def write_record(path: Path, pairs: Sequence[tuple[Stated, Measured]]) -> None:
    """Writes the verdicts of a run to a TOML file."""
    lines = []
    for stated, again in pairs:
        lines += ["[[again]]", f"claim = {json.dumps(stated.name, ensure_ascii=False)}"]
        lines += [f"{name} = {getattr(again, name):.6g}" for name in ("value", "low", "high")]
        lines += [f"{name} = {number}" for name in ("n", "k") if (number := getattr(again, name)) is not None]
        lines.append("")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def table(runs: Mapping[str, Sequence[Tested]]) -> str:
    """Formats the runs as a Markdown table with the numbers of claims tested, agreed and failed."""
    lines = ["| run | tested | agreed | failed |", "|---|---|---|---|"]
    for name, tested in [*runs.items(), ("all", [result for results in runs.values() for result in results])]:
        agreed = sum(result.agrees for result in tested)
        lines.append(f"| {name} | {len(tested)} | {agreed} | {len(tested) - agreed} |")
    return "\n".join(lines)


def _twins(group: str, by_name: Mapping[str, Stated]) -> list[tuple[Stated, Measured]]:
    pairs = []
    for stated in by_name.values():
        if stated.group.name == group and stated.claim.twin is not None:
            twin = by_name[f"{group}: {stated.claim.twin}"].claim
            pairs.append((stated, Measured(value=twin.value, low=twin.low, high=twin.high, n=twin.n, k=twin.k)))
    return pairs
