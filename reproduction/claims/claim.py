"""The claims of the documents: numbers with an interval, and counted ones, read from docs/claims/*.toml."""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from attnsweep.workloads.errors import UserError


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Trained(_Strict):
    """A sweep that measures a claim.

    Attributes:
        sweep: The name of a shipped sweep.
        fixed: `--set` arguments.
        trials, replicates: Those of the sweep where they differ from the shipped ones.
        counts: SQL on the ledger that gives a pair (trainings, of which with the property) per trial.
    """

    sweep: str
    fixed: tuple[str, ...] = ()
    trials: int | None = None
    replicates: int | None = None
    counts: str


class Claim(_Strict):
    """One number with its interval, as a page states it.

    Attributes:
        row: What is measured; with the group's name it is the name of the claim. With a `source`, the row that the
            source prints.
        sentence: The page's text up to and with the interval, as long as it takes to occur once.
        value, low, high: The number and its interval, with more digits than the page where they are known.
        n: Number of trainings, or of what else was sampled, if it is on record.
        k: How many of them have the property, for kind `share`.
        kind: `share` of independent trainings; `rate`, a share over trials whose trainings depend on each other;
            `estimate` of anything else.
        scale: On which an estimate is about normal.
        level: Of the interval.
        seeds: From which the number was measured.
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
            raise ValueError(f"{self.row}: got {self.value} outside of [{self.low}, {self.high}]")
        if (self.kind == "share") != (self.k is not None) or (self.k is not None and self.n is None):
            raise ValueError(f"{self.row}: a share has k and n, and nothing else has k")
        return self


class Group(_Strict):
    """Claims of one page that one command measures; what they share is stated once.

    Attributes:
        name: Of the group.
        command: What measured the numbers.
        ledger: The sweep of docs/ledgers that the numbers are read from, if it is there.
        source: The entry of `attnsweep.reproduction.claims.sources` that measures them again; empty if none can.
        measured: The day of the measurement.
        versions: Of attnsweep and torch.
        claims: The claims, without what `shared` says.
        shared: Fields of all claims of the group.
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
        """The claims."""
        for each in self.claims:
            yield Claim(**(self.shared | each))


class Counted(_Strict):
    """Numbers of a sentence that have no interval, such as `12 of the 16`, and the query that gives them.

    Attributes:
        sentence: The page's text with `{}` for each number, as long as it takes to occur once.
        ledgers: Sweeps of docs/ledgers; several are queried as one.
        query: SQL whose one row has the numbers, in their order.
    """

    sentence: str
    ledgers: tuple[str, ...]
    query: str


class Page(_Strict):
    """The claims of a page.

    Attributes:
        page: The file's name in docs/, or README.md.
        groups: Its numbers with an interval, by command.
        counted: Others, which a ledger gives.
    """

    page: str
    groups: tuple[Group, ...] = ()
    counted: tuple[Counted, ...] = ()


class Stated(_Strict):
    """A claim with where it stands and what measures it."""

    page: str
    group: Group
    claim: Claim

    @property
    def name(self) -> str:
        """What identifies the claim."""
        return f"{self.group.name}: {self.claim.row}"


def load_claims(folder: Path) -> list[Stated]:
    """All numbers with an interval of a folder, in the order of its files.

    Raises:
        UserError: If a file is not TOML, has unknown or missing fields, or two claims have one name.
    """
    found: dict[str, Stated] = {}
    for path, page in _pages(folder):
        with _reading(path):
            stated = [Stated(page=page.page, group=group, claim=row) for group in page.groups for row in group.rows()]
        for each in stated:
            if each.name in found:
                raise UserError(
                    path.name, given=f"a second claim {each.name}", expected="one of each name", fix="name its row"
                )
            found[each.name] = each
    return list(found.values())


def load_counted(folder: Path) -> dict[str, tuple[Counted, ...]]:
    """The counted numbers of a folder, by page.

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
            path.name, given=str(error), expected="rows as docs/claims.md describes them", fix="mend the row"
        ) from error
