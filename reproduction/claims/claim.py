"""The documentation's claims (numbers with intervals), read from docs/claims/*.toml, and tests of whether a second
measurement of a number agrees with the first.

A claim is a number with an interval, or a number that is counted. A share of independent trainings is compared by
Fisher's exact test. A rate over trials has Wilson's interval with an effective number of trainings, which is recovered
from its width; two such rates are compared by the score test. Any other estimate is compared by the difference of the
two values over its standard error. The standard error is read from the sides of the two intervals that face each other,
because an interval may reach farther to one side: it is the length of the side over z. Student's intervals are a little
wider than z standard errors, which makes the test a little conservative.

Source: Zou & Donner 2008, Stat. Med. 27 (variance from the facing sides of intervals).
"""

import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from attnsweep.workloads.errors import UserError


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Trained(_Strict):
    """How a claim is measured again by training: a shipped sweep, changes to it, and an SQL query that counts its
    trainings and those with the claimed property.

    Attributes:
        sweep: The name of a shipped sweep.
        fixed: `--set` arguments.
        trials, replicates: The numbers of trials and replicates, where they differ from the shipped sweep's.
        counts: SQL on the ledger that gives two numbers per trial: of its trainings, and of those that have the
            property.
    """

    sweep: str
    fixed: tuple[str, ...] = ()
    trials: int | None = None
    replicates: int | None = None
    counts: str


class Claim(_Strict):
    """A number with its interval, as a page of the documentation states it.

    Attributes:
        row: What is measured. The group's name and this are together the name of the claim; if the group has a
            `source`, this is the name of the row that the source prints.
        sentence: The page's text up to and including the interval, long enough to occur only once.
        value, low, high: The number and the ends of its interval; they have more digits than on the page where more are
            known.
        n: The number of trainings, or of other samples, if it is on record.
        k: How many of the `n` trainings have the property, for kind `share`.
        kind: `share` of independent trainings; `rate`, a share over trials whose trainings depend on each other;
            `estimate` of anything else.
        scale: The scale on which an estimate is about normal.
        level: The confidence level of the interval.
        seeds: The seeds from which the number was measured.
        twin: The claim that states the same on other seeds, if the page has both.
        trained: The sweep that measures the claim.
    """

    row: str
    sentence: str
    value: float
    low: float
    high: float
    n: int | None = None
    k: int | None = None
    kind: Literal["share", "rate", "estimate"]
    scale: Literal["linear", "log"] = "linear"
    level: float = 0.95
    seeds: str
    twin: str | None = None
    trained: Trained | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.low <= self.value <= self.high:
            raise ValueError(
                f"claim {self.row}: got the value {self.value}, expected a value inside of its interval [{self.low},"
                f" {self.high}]"
            )
        if (self.kind == "share") != (self.k is not None) or (self.k is not None and self.n is None):
            raise ValueError(
                f"claim {self.row}: expected k and n (k of n trials) for a share, and no k for any other value"
            )
        return self


class Group(_Strict):
    """Claims (numbers with intervals) of one page of the documentation that were measured by the same command. Fields
    that all of them share are stored once.

    Attributes:
        name: The name of the group.
        command: The command that measured the numbers.
        ledger: The sweep from which the numbers are read, if docs/ledgers has it.
        source: The entry of `attnsweep.reproduction.claims.sources` that measures the group's numbers again; empty if
            there is none.
        measured: The day of the measurement.
        versions: The versions of attnsweep and torch.
        claims: The claims, without the fields in `shared`.
        shared: Fields that all claims of the group have in common.
    """

    name: str
    command: str
    ledger: str = ""
    source: str = ""
    measured: str
    versions: str
    shared: dict[str, Any] = {}
    claims: tuple[dict[str, Any], ...]

    def rows(self) -> Iterator[Claim]:
        """Yields the claims of the group. Fields that all of them share are stored once, and are filled in here."""
        for fields in self.claims:
            yield Claim(**(self.shared | fields))


class Counted(_Strict):
    """Numbers without an interval in a sentence of the documentation, such as `12 of the 16`, and the SQL query that
    counts them.

    Attributes:
        sentence: The page's text with `{}` for each number, long enough to occur only once.
        ledgers: Sweeps of docs/ledgers; several are queried as one.
        query: SQL whose single row has the numbers in their order.
    """

    sentence: str
    ledgers: tuple[str, ...]
    query: str


class Page(_Strict):
    """The numbers that one page of the documentation states: those with an interval, and counted ones without.

    Attributes:
        page: The file's name in docs/, or README.md.
        groups: The numbers with an interval, by command.
        counted: Numbers without an interval, which a ledger gives.
    """

    page: str
    groups: tuple[Group, ...] = ()
    counted: tuple[Counted, ...] = ()


class Stated(_Strict):
    """A claim (a number with its interval) together with its page and the group of claims that are measured with it."""

    page: str
    group: Group
    claim: Claim

    @property
    def name(self) -> str:
        """The unique name of the claim: the name of its group, and what is measured."""
        return f"{self.group.name}: {self.claim.row}"


def load_claims(folder: Path) -> list[Stated]:
    """Loads all claims of the documentation (numbers with intervals) from the TOML files of a folder, in the order of
    the files.

    Raises:
        UserError: If a file is not TOML, has unknown or missing fields, or two claims have the same name.
    """
    by_name: dict[str, Stated] = {}
    for path, page in _pages(folder):
        with _reading(path):
            claims = [Stated(page=page.page, group=group, claim=row) for group in page.groups for row in group.rows()]
        for stated in claims:
            if stated.name in by_name:
                raise UserError(
                    path.name,
                    given=f"a second claim with the name {stated.name}",
                    expected="a different name for each claim",
                    fix="change the name in the claim's row",
                )
            by_name[stated.name] = stated
    return list(by_name.values())


def load_counted(folder: Path) -> dict[str, tuple[Counted, ...]]:
    """Loads from the TOML files of a folder the numbers that each page of the documentation states without an interval.

    Raises:
        UserError: If a file is not TOML, or has unknown or missing fields.
    """
    return {page.page: page.counted for _, page in _pages(folder)}


def _pages(folder: Path) -> Iterator[tuple[Path, Page]]:
    for path in sorted(folder.glob("*.toml")):
        with _reading(path):
            page = Page(**tomllib.loads(path.read_text()))
        yield path, page


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (tomllib.TOMLDecodeError, ValidationError, TypeError) as error:
        raise UserError(
            path.name,
            given=str(error),
            expected="rows as docs/claims.md describes them",
            fix="correct the row of the claim",
        ) from error


FAMILY_ERROR = 0.05
"""The largest probability that a run, which tests many claims, rejects at least one true claim."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What a second measurement, on another seed, gave for the number that a claim states: its value and its interval.

    Attributes:
        value, low, high: The number and its interval, at the claim's level.
        n: The number of trainings, or of other samples, if it is known.
        k: For a share of independent trainings, the number of trainings with the property.
    """

    value: float
    low: float
    high: float
    n: int | None = None
    k: int | None = None


def p_value(claim: Claim, again: Measured) -> float:
    """Returns the p-value of a test whether a number in the documentation and its measurement on another seed are
    estimates of the same true value."""
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
    """Returns which hypotheses are rejected by Holm's method for several tests. With probability 1 - `family_error` it
    rejects no true hypothesis.

    Source: Holm 1979, Scand. J. Statist. 6. It holds for any dependence between the tests.
    """
    rejected = [False] * len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] > family_error / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected


def effective_n(share: float, low: float, high: float, z: float = 1.959964) -> float:
    """Returns the number of independent trainings for which Wilson's interval of a rate would be as wide as the given
    interval.
    """
    least, most = 1e-3, 1e9
    for _ in range(200):
        middle = math.sqrt(least * most)
        half = z * math.sqrt(share * (1 - share) / middle + z**2 / (4 * middle**2)) / (1 + z**2 / middle)
        least, most = (middle, most) if 2 * half > high - low else (least, middle)
    return math.sqrt(least * most)


@dataclass(frozen=True, slots=True)
class Tested:
    """A claim with the value that a second measurement on another seed gave, and whether the two values agree.

    Attributes:
        stated: The claim.
        again: The value on the other seed.
        p: The probability that two measurements of the same number differ at least as much.
        agrees: Whether the claim is kept by Holm's test, which corrects for the number of claims in the run.
    """

    stated: Stated
    again: Measured
    p: float
    agrees: bool


def verdicts(pairs: Sequence[tuple[Stated, Measured]]) -> list[Tested]:
    """Tests for each claim whether its value agrees with the one measured again on another seed, with Holm's correction
    for the number of claims.
    """
    p_values = [p_value(stated.claim, again) for stated, again in pairs]
    rejected = holm(p_values)
    return [Tested(*pair, p, not is_rejected) for pair, p, is_rejected in zip(pairs, p_values, rejected, strict=True)]


def recorded(claims: Sequence[Stated], folder: Path) -> dict[str, list[Tested]]:
    """Reads the results of all earlier repetitions, in which claims were tested again with another seed. Returns for
    each repetition the tested claims, and whether the new values agree with the claimed ones.

    A repetition is a file of the folder, or the claims of a group that a page states twice, on two seeds (twins).
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


def write_again(path: Path, pairs: Sequence[tuple[Stated, Measured]]) -> None:
    """Writes the names of claims to a TOML file, each with the value, interval and counts that were measured again on
    another seed.
    """
    lines = []
    for stated, again in pairs:
        lines += ["[[again]]", f"claim = {json.dumps(stated.name, ensure_ascii=False)}"]
        lines += [f"{name} = {getattr(again, name):.6g}" for name in ("value", "low", "high")]
        lines += [f"{name} = {number}" for name in ("n", "k") if (number := getattr(again, name)) is not None]
        lines.append("")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def table(runs: Mapping[str, Sequence[Tested]]) -> str:
    """Formats a Markdown table of how the claims of the documentation fared when they were measured again. Each run has
    a row: how many claims it tested, how many of them agreed with the documentation, and how many failed. The last row
    is the total.
    """
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
