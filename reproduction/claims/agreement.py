"""Do two measurements of one number agree? Two-sample tests, and Holm's correction over the tests of a run.

A share of independent trainings is compared by Fisher's exact test. A rate over trials has an interval of Wilson's with
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
"""Probability that a run rejects at least one true claim."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A number and its interval.

    Attributes:
        value, low, high: The number and its interval, of the claim's level.
        n: Number of trainings, or of what else was sampled, if it is known.
        k: How many have the property, for a share of independent trainings.
    """

    value: float
    low: float
    high: float
    n: int | None = None
    k: int | None = None


def p_value(claim: Claim, again: Measured) -> float:
    """The probability of two measurements that differ as much or more, if they measure one number."""
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
        of = math.log if claim.scale == "log" else float
        stated = Measured(value=claim.value, low=claim.low, high=claim.high)
        lower, upper = sorted((stated, again), key=lambda each: each.value)
        error = math.hypot(of(upper.value) - of(upper.low), of(lower.high) - of(lower.value)) / z
        difference = of(upper.value) - of(lower.value)
    if error == 0.0:
        return float(difference == 0.0)
    return float(2 * stats.norm.sf(abs(difference) / error))


def holm(p_values: Sequence[float], family_error: float = FAMILY_ERROR) -> list[bool]:
    """Which of these are rejected. The chance of rejecting any true one is at most `family_error`.

    Source: Holm 1979, Scand. J. Statist. 6. It holds whatever the dependence between the tests.
    """
    rejected = [False] * len(p_values)
    for rank, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[at] > family_error / (len(p_values) - rank):
            break
        rejected[at] = True
    return rejected


def effective_n(share: float, low: float, high: float, z: float = 1.959964) -> float:
    """The number of independent trainings whose Wilson interval is as wide as this one."""
    least, most = 1e-3, 1e9
    for _ in range(200):
        middle = math.sqrt(least * most)
        half = z * math.sqrt(share * (1 - share) / middle + z**2 / (4 * middle**2)) / (1 + z**2 / middle)
        least, most = (middle, most) if 2 * half > high - low else (least, middle)
    return math.sqrt(least * most)


@dataclass(frozen=True, slots=True)
class Tested:
    """A claim, its value on another seed, and the verdict.

    Attributes:
        stated: The claim.
        again: The other value.
        p: Probability of values that differ as much, if both measure one number.
        agrees: Whether Holm's test over the claims of the run lets it stand.
    """

    stated: Stated
    again: Measured
    p: float
    agrees: bool


def verdicts(pairs: Sequence[tuple[Stated, Measured]]) -> list[Tested]:
    """The verdicts on the claims of one run."""
    p_values = [p_value(stated.claim, again) for stated, again in pairs]
    rejected = holm(p_values)
    return [Tested(*pair, p, not no) for pair, p, no in zip(pairs, p_values, rejected, strict=True)]


def recorded(claims: Sequence[Stated], folder: Path) -> dict[str, list[Tested]]:
    """The verdicts by run: a file of the folder, or the twins of a group, which are the page's own second seed."""
    by_name = {each.name: each for each in claims}
    found = {}
    for path in sorted(folder.glob("*.toml")):
        rows = tomllib.loads(path.read_text())["again"]
        pairs = [(by_name[row.pop("claim")], Measured(**row)) for row in rows]
        found[path.stem] = verdicts(pairs)
    for group in sorted({each.group.name for each in claims}):
        pairs = list(_twins(group, by_name))
        if pairs:
            found[f"{group}, twice on its page"] = verdicts(pairs)
    return found


def write_record(path: Path, pairs: Sequence[tuple[Stated, Measured]]) -> None:
    """Writes a run as TOML."""
    lines = []
    for stated, again in pairs:
        lines += ["[[again]]", f"claim = {json.dumps(stated.name, ensure_ascii=False)}"]
        lines += [f"{name} = {getattr(again, name):.6g}" for name in ("value", "low", "high")]
        lines += [f"{name} = {number}" for name in ("n", "k") if (number := getattr(again, name)) is not None]
        lines.append("")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def table(runs: Mapping[str, Sequence[Tested]]) -> str:
    """The runs as a table of Markdown: claims tested, agreed and failed."""
    lines = ["| run | tested | agreed | failed |", "|---|---|---|---|"]
    for name, of_run in runs.items():
        agreed = sum(each.agrees for each in of_run)
        lines.append(f"| {name} | {len(of_run)} | {agreed} | {len(of_run) - agreed} |")
    everything = [each for of_run in runs.values() for each in of_run]
    agreed = sum(each.agrees for each in everything)
    lines.append(f"| all | {len(everything)} | {agreed} | {len(everything) - agreed} |")
    return "\n".join(lines)


def _twins(group: str, by_name: Mapping[str, Stated]) -> list[tuple[Stated, Measured]]:
    pairs = []
    for each in by_name.values():
        if each.group.name == group and each.claim.twin is not None:
            twin = by_name[f"{group}: {each.claim.twin}"].claim
            pairs.append((each, Measured(value=twin.value, low=twin.low, high=twin.high, n=twin.n, k=twin.k)))
    return pairs
