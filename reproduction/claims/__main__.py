"""`make claims NAME=...`: measures a group of the documents' claims again on another seed, and reports which agree.

The name may also be that of a claim in `docs/claims/stated`, which is then verified: docs/verify.md. Without a name,
all claims in that folder are verified, and their verdicts can be recorded.
"""

import argparse
import json
import os
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from attnsweep.orchestrator.analysis.verdict import Decision, Verdict, said
from attnsweep.orchestrator.running.verifying import Verified, begin, decide
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.reproduction.claims.claim import (
    FAMILY_ERROR,
    Measured,
    Stated,
    Tested,
    effective_n,
    load_claims,
    verdicts,
    write_again,
)
from attnsweep.reproduction.claims.sources import SWEPT, Numbers, Run, measure, measure_ledger, measure_sweep
from attnsweep.search_spaces.claim import Claim, load_claim
from attnsweep.workloads.errors import UserError, did_you_mean

FOLDER = Path("docs/claims")
STATED = FOLDER / "stated"
RECORD = "verdicts.toml"


class StoppedError(Exception):
    """Raised if the user stops the sweep that verifies a claim before there is a verdict."""


def main() -> int:
    """Takes new measurements for the claims that the command line names, prints whether these claims hold, and records
    the results on request. Returns the exit code: 1 if a claim fails, 2 for a bad argument, 130 if the user stops it,
    else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "name", nargs="?", default="", help=f"a group of {FOLDER}/*.toml, or a claim in {STATED}; default: all of these"
    )
    parser.add_argument("--seed", type=int, help="default: 1, and for a claim that decides itself that of its file")
    parser.add_argument("--budget", type=int, help="the most trainings of each claim that decides itself")
    parser.add_argument("--dir", type=Path, default=Path("sweeps/claims"))
    parser.add_argument("--sweep", type=Path, help="a finished sweep on the other seed, in place of a new one")
    parser.add_argument("--record", action="store_true", help=f"write the result into {FOLDER}/again, or {STATED}")
    options = parser.parse_args()
    console = Console(stderr=True)
    stated = {claim.name: claim for claim in claims_of(STATED, options.seed, options.budget)}
    try:
        if not options.name:
            return _decide_all(list(stated.values()), options.dir, console, record=options.record)
        if options.name in stated:
            verdict = _decide(stated[options.name], options.dir, console).verdict
            verdict.print(Console())
            return int(verdict.decision == "refuted")
        seed = 1 if options.seed is None else options.seed
        run = Run(seed, options.dir / f"{options.name}-{seed}", console)
        pairs = measured_again(_group_named(options.name), run, options.sweep)
        tested = verdicts(pairs)
        _print(tested, Console())
        if options.record:
            write_again(FOLDER / "again" / f"{options.name}-seed-{seed}.toml", pairs)
        return int(not all(claim.agrees for claim in tested))
    except UserError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    except StoppedError:
        return 130


def claims_of(folder: Path, seed: int | None, budget: int | None) -> list[Claim]:
    """Loads from the files of a folder the claims that can be verified by training, sorted by name.

    Args:
        folder: The folder of the claims' files.
        seed: The seed that replaces the one in each file; `None` to keep it.
        budget: The largest number of trainings of each claim; `None` for the number in its file. Each group of
            trainings gets at least one batch.
    """
    found = []
    for claim in map(load_claim, sorted(folder.glob("*.yaml"))):
        least = claim.batch * len(claim.groups)
        most = claim.budget if budget is None else max(min(budget, claim.budget), least)
        found.append(claim.but(seed=claim.seed if seed is None else seed, budget=most))
    return found


@dataclass(frozen=True, slots=True)
class Decided:
    """A claim's verdict and the evidence for it, as they are recorded.

    Attributes:
        name: The claim's name.
        seed: The seed of the trainings.
        verdict: Supported, refuted, or undecided at the budget.
        trainings: The number of trainings in all groups.
        evidence: The larger of the two e-values (strengths of evidence for and against the claim), with its side: `291
            for`.
        cpu_seconds: The CPU time of this process and its children while the claim was decided.
    """

    name: str
    seed: int
    verdict: Decision
    trainings: int
    evidence: str
    cpu_seconds: float

    @classmethod
    def of(cls, verdict: Verdict, cpu_seconds: float) -> "Decided":
        """Makes the entry that is recorded for a claim from the result of its verification."""
        evidence = said(verdict.looks[-1].evidence).removeprefix("evidence ") if verdict.looks else "none"
        claim = verdict.claim
        return cls(claim.name, claim.seed, verdict.decision, verdict.n_trainings, evidence, round(cpu_seconds, 1))


def _decide_all(claims: list[Claim], folder: Path, console: Console, *, record: bool) -> int:
    """Decides all claims by training, and prints a table of the verdicts. If an error or the user stops this, the table
    has only the claims decided before. Returns 1 if a claim is refuted, else 0.
    """
    console.print(announcement(claims, read_record(STATED / RECORD)), highlight=False)
    decided: list[Decided] = []
    try:
        for claim in claims:
            before = _cpu_seconds()
            verdict = _decide(claim, folder, Console(quiet=True)).verdict
            found = Decided.of(verdict, _cpu_seconds() - before)
            decided.append(found)
            line = f"{len(decided)}/{len(claims)} {found.name}: {found.verdict}, {found.trainings} trainings"
            console.print(f"{line}, {found.cpu_seconds:.0f} CPU s", highlight=False)
    finally:
        print_table(decided, Console())
    if record:
        write_record(STATED / RECORD, decided)
    return int(any(found.verdict == "refuted" for found in decided))


def _decide(claim: Claim, folder: Path, console: Console) -> Verified:
    """Verifies a claim by training, in a sweep directory inside the given folder; continues an earlier verification if
    there is one.

    Raises:
        StoppedError: If the user stopped it.
        UserError: If the claim's self-check failed, or as `begin` and `decide` do.
        PoolError, SweepError: As `begin` and `decide` do.
    """
    where, resources = folder / f"{claim.name}-{claim.seed}", Resources(local=True)
    latest = None if SweepDirectory.is_there(where) else begin(claim, where, resources, console)
    found = decide(where, resources, console, claim=claim, latest=latest)
    if found.summary is not None and not found.summary.finished:
        raise StoppedError
    if found.summary is not None and found.summary.fault is not None:
        raise UserError(
            claim.name,
            given=found.summary.fault,
            expected="a self-check in which repeated trainings end as before, to the last bit",
            fix=f"examine the sweep in {where}",
        )
    return found


def _cpu_seconds() -> float:
    """Returns the CPU time of this process and of the processes that it has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def announcement(claims: Sequence[Claim], known: Sequence[Decided]) -> str:
    """Returns a text that says how many trainings the claims take at most, and how much CPU time they took when their
    verdicts were recorded.
    """
    line = f"{len(claims)} claims, at most {sum(claim.budget for claim in claims):,} trainings"
    seconds = {each.name: each.cpu_seconds for each in known}
    measured = [seconds[claim.name] for claim in claims if claim.name in seconds]
    if measured:
        line += f"; {len(measured)} of them took {sum(measured) / 60:.0f} CPU minutes when they were recorded"
    return line


def print_table(found: Sequence[Decided], console: Console) -> None:
    """Prints a table of verified claims, each with its verdict (supported, refuted or undecided) and the evidence."""
    grid = Table("claim", "verdict", "trainings", "evidence", "CPU s", box=None, header_style="bold")
    for each in found:
        grid.add_row(each.name, each.verdict, f"{each.trainings:,}", each.evidence, f"{each.cpu_seconds:.0f}")
    console.print(grid)
    counts = Counter(each.verdict for each in found)
    console.print(", ".join(f"{counts[verdict]} {verdict}" for verdict in ("supported", "refuted", "undecided")))


def write_record(path: Path, found: Sequence[Decided]) -> None:
    """Writes the verdicts on verified claims to a TOML file, which `read_record` reads."""
    rows = [[f"{name} = {json.dumps(value)}" for name, value in asdict(each).items()] for each in found]
    path.write_text("\n\n".join("\n".join(["[[verdict]]", *row]) for row in rows) + "\n")


def read_record(path: Path) -> list[Decided]:
    """Reads the verdicts on claims (supported, refuted or undecided) from the file that `write_record` wrote. Returns
    an empty list if there is no such file."""
    rows = tomllib.loads(path.read_text())["verdict"] if path.exists() else []
    return [Decided(**row) for row in rows]


def markdown(claims: Sequence[Claim], found: Sequence[Decided]) -> str:
    """Formats the recorded verdicts on claims as a Markdown table, with the statements of the claims."""
    lines = ["| claim | | verdict | trainings | evidence | CPU s |", "|---|---|---|---|---|---|"]
    by_name = {claim.name: claim for claim in claims}
    for each in found:
        cells = (f"`{each.name}`", by_name[each.name].claim, each.verdict, each.trainings, each.evidence)
        lines.append(f"| {' | '.join(map(str, cells))} | {each.cpu_seconds:.0f} |")
    return "\n".join(lines)


def _group_named(name: str) -> list[Stated]:
    """Returns the documented claims of the group with the given name, if a study or a sweep can measure at least one of
    them again.

    Raises:
        UserError: If there is no such group, or none of its numbers can be measured again.
    """
    claims = load_claims(FOLDER)
    groups = {stated.group.name: stated.group for stated in claims}
    measurable = [
        group_name
        for group_name, group in groups.items()
        if group.source or any("trained" in row for row in group.claims)
    ]
    if name not in measurable:
        fix = did_you_mean(name, measurable, otherwise="choose one of these groups")
        raise UserError("NAME", given=name, expected=f"the name of a group of claims: {', '.join(measurable)}", fix=fix)
    return [stated for stated in claims if stated.group.name == name]


def measured_again(chosen: list[Stated], run: Run, sweep: Path | None = None) -> list[tuple[Stated, Measured]]:
    """Measures numbers that the documentation states (claims) again, on another seed. Returns each claim for which a
    new value was found, with that value.

    Args:
        chosen: The claims.
        run: The seed, directory and console of the measurement.
        sweep: The directory of a finished sweep on another seed; `None` to run one.

    Raises:
        UserError: If there is no such sweep, or the group's numbers do not come from a sweep.
    """
    source = chosen[0].group.source
    numbers: Numbers = {}
    if source and (sweep is not None or any(stated.claim.trained is None for stated in chosen)):
        numbers = _numbers(source, run, sweep)
    pairs = []
    for stated in chosen:
        claim = stated.claim
        if claim.seeds == f"sweep seed {run.seed}":
            run.console.print(f"measured on this seed already: {stated.name}")
            continue
        if claim.trained is not None and sweep is None:
            interval = measure_sweep(claim.trained, run).interval
        elif claim.row in numbers:
            interval = numbers[claim.row]
        else:
            run.console.print(f"not measured: {stated.name}")
            continue
        assert interval is not None
        value, low, high = interval
        n, k = claim.n, None
        if claim.kind == "share":
            n = round(effective_n(value, low, high))
            k = round(value * n)
        pairs.append((stated, Measured(value=value, low=low, high=high, n=n, k=k)))
    return pairs


def _numbers(source: str, run: Run, sweep: Path | None) -> Numbers:
    if sweep is None:
        return measure(source, run)
    if source not in SWEPT:
        raise UserError(
            "--sweep", given=str(sweep), expected="a group of claims that a sweep measures", fix="leave out --sweep"
        )
    return measure_ledger(source, SweepDirectory.open(sweep), run.directory)


def _print(tested: list[Tested], console: Console) -> None:
    grid = Table("claim", "stated", "again", "p", "")
    for result in tested:
        stated, again = result.stated.claim, result.again
        grid.add_row(
            stated.row,
            f"{stated.value:g} [{stated.low:g}, {stated.high:g}]",
            f"{again.value:.4g} [{again.low:.4g}, {again.high:.4g}]",
            f"{result.p:.3g}",
            "agrees" if result.agrees else "FAILS",
        )
    console.print(grid)
    console.print(
        f"Two-sample tests, corrected over the {len(tested)} claims of this run by Holm's method: if all are true, one "
        f"fails in at most {FAMILY_ERROR:.0%} of runs."
    )


if __name__ == "__main__":
    sys.exit(main())
