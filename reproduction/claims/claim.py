"""The claims of the documents, numbers with an interval and counted ones, read from docs/claims/*.toml."""

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
    """The sweep whose trainings measure a claim.

    Attributes:
        sweep: The name of a shipped sweep.
        fixed: `--set` arguments.
        trials, replicates: The numbers of trials and replicates, where they differ from the shipped sweep's.
        counts: SQL on the ledger that gives a pair per trial: its trainings, and how many of them have the property.
    """

    sweep: str
    fixed: tuple[str, ...] = ()
    trials: int | None = None
    replicates: int | None = None
    counts: str


class Claim(_Strict):
    """A number with its interval, as a page of the documentation states it.

    Attributes:
        row: What is measured. With the group's name it is the name of the claim; with a `source`, it is the row that
            the source prints.
        sentence: The page's text up to and including the interval, long enough to occur only once.
        value, low, high: The number and its interval, with more digits than the page where they are known.
        n: The number of trainings, or of other samples, if it is on record.
        k: How many of them have the property, for kind `share`.
        kind: `share` of independent trainings; `rate`, a share over trials whose trainings depend on each other;
            `estimate` of anything else.
        scale: The scale on which an estimate is about normal.
        level: The level of the interval.
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
            raise ValueError(f"claim {self.row}: expected k and n for a share, and no k for any other value")
        return self


class Group(_Strict):
    """Claims of one page that one command measures. Fields that all of them share are stored once.

    Attributes:
        name: The name of the group.
        command: The command that measured the numbers.
        ledger: The sweep of docs/ledgers that the numbers are read from, if it is there.
        source: The entry of `attnsweep.reproduction.claims.sources` that measures them again; empty if none can.
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
        """Yields the group's claims, each with the fields that the group shares."""
        for fields in self.claims:
            yield Claim(**(self.shared | fields))


class Counted(_Strict):
    """Numbers without an interval in a sentence of the documentation, such as `12 of the 16`, and the query for them.

    Attributes:
        sentence: The page's text with `{}` for each number, long enough to occur only once.
        ledgers: Sweeps of docs/ledgers; several are queried as one.
        query: SQL whose single row has the numbers in their order.
    """

    sentence: str
    ledgers: tuple[str, ...]
    query: str


class Page(_Strict):
    """The claims of one page of the documentation.

    Attributes:
        page: The file's name in docs/, or README.md.
        groups: The numbers with an interval, by command.
        counted: Numbers without an interval, which a ledger gives.
    """

    page: str
    groups: tuple[Group, ...] = ()
    counted: tuple[Counted, ...] = ()


class Stated(_Strict):
    """A claim together with its page, and with the group of claims that is measured together."""

    page: str
    group: Group
    claim: Claim

    @property
    def name(self) -> str:
        """The name that identifies the claim among all claims."""
        return f"{self.group.name}: {self.claim.row}"


def load_claims(folder: Path) -> list[Stated]:
    """Loads all claims (numbers with an interval) from the files of a folder, in the order of the files.

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
    """Loads the numbers without an interval from the files of a folder, by page.

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
