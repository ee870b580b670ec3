"""`make claims NAME=...`: measures the claims of a group again on another seed, and says which agree.

The name may be that of a claim in `docs/claims/stated`, which decides itself: docs/verify.md. Without a name, all of
these are decided.
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
    """Reads the arguments, measures, prints, and records; 1 if a claim fails or is refuted, 2 for a mistake."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "name", nargs="?", default="", help=f"a group of {FOLDER}/*.toml, or a claim in {STATED}; default: all of these"
    )
    parser.add_argument("--seed", type=int, help="default: 1, and for a claim that decides itself that of its file")
    parser.add_argument("--budget", type=int, help="the most trainings of each claim that decides itself")
    parser.add_argument("--dir", type=Path, default=Path("sweeps/claims"))
    parser.add_argument("--sweep", type=Path, help="a finished sweep on the other seed, in place of a new one")
    parser.add_argument("--record", action="store_true", help=f"write the result into {FOLDER}/again, or {STATED}")
    given = parser.parse_args()
    console = Console(stderr=True)
    stated = {claim.name: claim for claim in claims_of(STATED, given.seed, given.budget)}
    try:
        if not given.name:
            return _all(list(stated.values()), given.dir, console, record=given.record)
        if given.name in stated:
            found = decide_one(stated[given.name], given.dir, console).verdict
            found.print(Console())
            return int(found.decision == "refuted")
        seed = 1 if given.seed is None else given.seed
        return _again(given.name, Run(seed, given.dir / f"{given.name}-{seed}", console), given.sweep, given.record)
    except UserError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    except StoppedError:
        return 130


def _all(claims: list[Claim], folder: Path, console: Console, *, record: bool) -> int:
    """Decides all claims and prints a table, also of those before one that cannot be decided."""
    console.print(announcement(claims, read_record(STATED / RECORD)), highlight=False)
    found: list[Decided] = []
    try:
        for each in decide_all(claims, folder):
            found.append(each)
            line = f"{len(found)}/{len(claims)} {each.name}: {each.verdict}, {each.trainings} trainings"
            console.print(f"{line}, {each.cpu_seconds:.0f} CPU s", highlight=False)
    finally:
        print_table(found, Console())
    if record:
        write_record(STATED / RECORD, found)
    return int(any(each.verdict == "refuted" for each in found))


def _again(name: str, run: Run, sweep: Path | None, record: bool) -> int:
    pairs = measured_again(group_named(name, load_claims(FOLDER)), run, sweep)
    found = verdicts(pairs)
    _print(found, Console())
    if record:
        write_record_of_group(FOLDER / "again" / f"{name}-seed-{run.seed}.toml", pairs)
    return int(not all(each.agrees for each in found))


def group_named(name: str, claims: list[Stated]) -> list[Stated]:
    """The claims of a group, if something measures them.

    Raises:
        UserError: If there is no such group, or nothing measures it.
    """
    groups = {each.group.name: each.group for each in claims}
    able = [group for group, of in groups.items() if of.source or any("trained" in row for row in of.claims)]
    if name not in able:
        fix = did_you_mean(name, able, otherwise="choose one of them")
        raise UserError("NAME", given=name, expected=f"one of {', '.join(able)}", fix=fix)
    return [each for each in claims if each.group.name == name]


def measured_again(chosen: list[Stated], run: Run, sweep: Path | None = None) -> list[tuple[Stated, Measured]]:
    """The claims of a group with their values on another seed; those without a value there are left out.

    Args:
        chosen: The claims.
        run: What to run with.
        sweep: Where a sweep on another seed is that has ended; `None` to run one.

    Raises:
        UserError: If there is no sweep, or the group's numbers do not come from one.
    """
    source = chosen[0].group.source
    own_sweeps = sweep is None
    is_read = any(not own_sweeps or each.claim.trained is None for each in chosen)
    numbers = _numbers(source, run, sweep) if source and is_read else {}
    pairs = []
    for stated in chosen:
        claim = stated.claim
        if claim.seeds == f"sweep seed {run.seed}":
            run.console.print(f"measured on this seed already: {stated.name}")
            continue
        if claim.trained is not None and own_sweeps:
            found = measure_sweep(claim.trained, run).interval
        elif claim.row in numbers:
            found = numbers[claim.row]
        else:
            run.console.print(f"not measured: {stated.name}")
            continue
        assert found is not None
        value, low, high = found
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
        raise UserError("--sweep", given=str(sweep), expected="a group measured by a sweep", fix="leave it out")
    return measure_ledger(source, SweepDirectory.open(sweep), run.directory)


def _print(found: list[Tested], console: Console) -> None:
    grid = Table("claim", "stated", "again", "p", "")
    for each in found:
        stated, again = each.stated.claim, each.again
        grid.add_row(
            stated.row,
            f"{stated.value:g} [{stated.low:g}, {stated.high:g}]",
            f"{again.value:.4g} [{again.low:.4g}, {again.high:.4g}]",
            f"{each.p:.3g}",
            "agrees" if each.agrees else "FAILS",
        )
    console.print(grid)
    console.print(
        f"Two-sample tests, corrected over the {len(found)} claims of this run by Holm's method: if all are true, one "
        f"fails in at most {FAMILY_ERROR:.0%} of runs."
    )


if __name__ == "__main__":
    sys.exit(main())
