"""Decides the claims of `docs/claims/stated`, one or all, and keeps what was found: docs/verify.md."""

import json
import resource
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from attnsweep.orchestrator.analysis.verdict import Decision, Verdict, said
from attnsweep.orchestrator.running.verifying import Verified, begin, decide
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces.claim import Claim, load_claim
from attnsweep.workloads.errors import UserError

STATED = Path("docs/claims/stated")
RECORD = "verdicts.toml"


@dataclass(frozen=True, slots=True)
class Decided:
    """A claim's verdict and the evidence for it, as they are recorded.

    Attributes:
        name: The claim's name.
        seed: The seed of the trainings.
        verdict: Supported, refuted, or undecided at the budget.
        trainings: The number of trainings in all groups.
        evidence: The larger of the two e-values, with its side: `291 for`.
        cpu_seconds: CPU time of this process and its children meanwhile.
    """

    name: str
    seed: int
    verdict: Decision
    trainings: int
    evidence: str
    cpu_seconds: float


class StoppedError(Exception):
    """Raised if the user stops a claim's sweep."""


def claims_of(folder: Path, seed: int | None, budget: int | None) -> list[Claim]:
    """Loads the claims of a folder, sorted by name.

    Args:
        folder: The folder of the claims' files.
        seed: The seed that replaces the one in each file; `None` to keep it.
        budget: The most trainings of each claim; `None` for its own.
    """
    return [_given(load_claim(path), seed, budget) for path in sorted(folder.glob("*.yaml"))]


def _given(claim: Claim, seed: int | None, budget: int | None) -> Claim:
    least = claim.batch * len(claim.groups)
    most = claim.budget if budget is None else max(min(budget, claim.budget), least)
    return claim.but(seed=claim.seed if seed is None else seed, budget=most)


def decide_one(claim: Claim, folder: Path, console: Console) -> Verified:
    """Verifies a claim in a sweep directory inside the folder, or continues an earlier verification.

    Raises:
        StoppedError: If the user stopped it.
        UserError: If its self-check failed, or as `begin` and `decide` do.
        PoolError, SweepError: As they do.
    """
    where, resources = folder / f"{claim.name}-{claim.seed}", Resources(local=True)
    latest = None if SweepDirectory.is_there(where) else begin(claim, where, resources, console)
    found = decide(where, resources, console, claim=claim, latest=latest)
    if found.summary is not None and not found.summary.finished:
        raise StoppedError
    if found.summary is not None and found.summary.fault is not None:
        raise UserError(claim.name, given=found.summary.fault, expected="replays that agree", fix=f"look into {where}")
    return found


def decide_all(claims: Sequence[Claim], folder: Path) -> Iterator[Decided]:
    """Decides claims one after the other, without showing progress. Raises the same errors as `decide_one`."""
    for claim in claims:
        before = _cpu_seconds()
        found = decide_one(claim, folder, Console(quiet=True)).verdict
        yield decided(found, _cpu_seconds() - before)


def decided(verdict: Verdict, cpu_seconds: float) -> Decided:
    """Extracts from a verdict what is recorded."""
    evidence = said(verdict.looks[-1].evidence).removeprefix("evidence ") if verdict.looks else "none"
    claim = verdict.claim
    return Decided(claim.name, claim.seed, verdict.decision, verdict.n_trainings, evidence, round(cpu_seconds, 1))


def _cpu_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def announcement(claims: Sequence[Claim], known: Sequence[Decided]) -> str:
    """Describes, before the first sweep, how many trainings and how much CPU time the claims may take."""
    most = sum(claim.budget for claim in claims)
    line = f"{len(claims)} claims, at most {most:,} trainings"
    seconds = {each.name: each.cpu_seconds for each in known}
    measured = [seconds[claim.name] for claim in claims if claim.name in seconds]
    if measured:
        line += f"; {len(measured)} of them took {sum(measured) / 60:.0f} CPU minutes when they were recorded"
    return line


def print_table(found: Sequence[Decided], console: Console) -> None:
    """Prints the verdicts as a table."""
    grid = Table("claim", "verdict", "trainings", "evidence", "CPU s", box=None, header_style="bold")
    for each in found:
        grid.add_row(each.name, each.verdict, f"{each.trainings:,}", each.evidence, f"{each.cpu_seconds:.0f}")
    console.print(grid)
    counts = {
        verdict: sum(each.verdict == verdict for each in found) for verdict in ("supported", "refuted", "undecided")
    }
    console.print(", ".join(f"{n} {verdict}" for verdict, n in counts.items()))


def write_record(path: Path, found: Sequence[Decided]) -> None:
    """Writes the verdicts to a TOML file."""
    rows = [[f"{name} = {json.dumps(value)}" for name, value in asdict(each).items()] for each in found]
    path.write_text("\n\n".join("\n".join(["[[verdict]]", *row]) for row in rows) + "\n")


def read_record(path: Path) -> list[Decided]:
    """Reads the verdicts that `write_record` wrote; none if the file does not exist."""
    rows = tomllib.loads(path.read_text())["verdict"] if path.exists() else []
    return [Decided(**row) for row in rows]


def markdown(claims: Sequence[Claim], found: Sequence[Decided]) -> str:
    """Formats the verdicts as a Markdown table, with the claims' statements."""
    lines = ["| claim | | verdict | trainings | evidence | CPU s |", "|---|---|---|---|---|---|"]
    by_name = {claim.name: claim for claim in claims}
    for each in found:
        cells = (f"`{each.name}`", by_name[each.name].claim, each.verdict, each.trainings, each.evidence)
        lines.append(f"| {' | '.join(map(str, cells))} | {each.cpu_seconds:.0f} |")
    return "\n".join(lines)
