"""`make claims NAME=...`: measures the claims of a group again on another seed, and reports which agree.

The name may be that of a claim in `docs/claims/stated`, which is then verified: docs/verify.md. Without a name, all of
these claims are verified.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.claims.agreement import FAMILY_ERROR, Measured, Tested, effective_n, verdicts
from attnsweep.reproduction.claims.agreement import write_record as write_record_of_group
from attnsweep.reproduction.claims.claim import Stated, load_claims
from attnsweep.reproduction.claims.deciding import (
    RECORD,
    STATED,
    Decided,
    StoppedError,
    announcement,
    claims_of,
    decide_all,
    decide_one,
    print_table,
    read_record,
    write_record,
)
from attnsweep.reproduction.claims.sources import SWEPT, Numbers, Run, measure, measure_ledger, measure_sweep
from attnsweep.search_spaces.claim import Claim
from attnsweep.workloads.errors import UserError, did_you_mean

FOLDER = Path("docs/claims")


def main() -> int:
    """Measures the claims that the arguments name again, prints and records the results. Returns 1 if a claim fails, 2
    for a bad argument.
    """
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
            return _all(list(stated.values()), options.dir, console, record=options.record)
        if options.name in stated:
            verdict = decide_one(stated[options.name], options.dir, console).verdict
            verdict.print(Console())
            return int(verdict.decision == "refuted")
        seed = 1 if options.seed is None else options.seed
        run = Run(seed, options.dir / f"{options.name}-{seed}", console)
        return _again(options.name, run, options.sweep, record=options.record)
    except UserError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    except StoppedError:
        return 130


def _all(claims: list[Claim], folder: Path, console: Console, *, record: bool) -> int:
    """Decides all claims and prints a table, also of those before one that cannot be decided."""
    console.print(announcement(claims, read_record(STATED / RECORD)), highlight=False)
    decided: list[Decided] = []
    try:
        for verdict in decide_all(claims, folder):
            decided.append(verdict)
            line = f"{len(decided)}/{len(claims)} {verdict.name}: {verdict.verdict}, {verdict.trainings} trainings"
            console.print(f"{line}, {verdict.cpu_seconds:.0f} CPU s", highlight=False)
    finally:
        print_table(decided, Console())
    if record:
        write_record(STATED / RECORD, decided)
    return int(any(verdict.verdict == "refuted" for verdict in decided))


def _again(name: str, run: Run, sweep: Path | None, *, record: bool) -> int:
    pairs = measured_again(group_named(name, load_claims(FOLDER)), run, sweep)
    tested = verdicts(pairs)
    _print(tested, Console())
    if record:
        write_record_of_group(FOLDER / "again" / f"{name}-seed-{run.seed}.toml", pairs)
    return int(not all(claim.agrees for claim in tested))


def group_named(name: str, claims: list[Stated]) -> list[Stated]:
    """Returns the group of claims with this name. Raises if its claims cannot be measured again.

    Raises:
        UserError: If there is no such group, or none of its numbers can be measured again.
    """
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
    """Measures the claims of a group on another seed. Returns those that got a value, with the new value.

    Args:
        chosen: The claims.
        run: The seed, directory and console of the measurement.
        sweep: The directory of a finished sweep on another seed; `None` to run one.

    Raises:
        UserError: If there is no such sweep, or the group's numbers do not come from a sweep.
    """
    source = chosen[0].group.source
    own_sweeps = sweep is None
    is_read = any(not own_sweeps or stated.claim.trained is None for stated in chosen)
    numbers = _numbers(source, run, sweep) if source and is_read else {}
    pairs = []
    for stated in chosen:
        claim = stated.claim
        if claim.seeds == f"sweep seed {run.seed}":
            run.console.print(f"measured on this seed already: {stated.name}")
            continue
        if claim.trained is not None and own_sweeps:
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
