"""`attnsweep verify`: seeds for a claim's groups, batch by batch, until the evidence decides or the budget is spent.

A claim is one ordinary sweep, with a trial for each group. Each batch is one run of it, and each further one adds
replicates; so what is said of interrupted and resumed sweeps, audits and replays holds for claims.
"""

from dataclasses import dataclass

from rich.console import Console

from attnsweep.orchestrator.analysis.verdicts.verdict import Verdict, columns, verdict
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.report.verdict_page import write_verdict
from attnsweep.orchestrator.running.session import resume_sweep, run_sweep
from attnsweep.orchestrator.running.summary import Summary
from attnsweep.orchestrator.storage.annotation import Annotation
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces.claim import Claim
from attnsweep.search_spaces.validation import check_outcome
from attnsweep.workloads.errors import SpecError, UserError, did_you_mean
from attnsweep.workloads.registry import load_workload


@dataclass(frozen=True)
class Verified:
    """How far a claim has come.

    Attributes:
        directory: Its sweep.
        verdict: The verdict by what is there.
        summary: Of the last batch that this run trained; `None` if nothing was to be trained.
    """

    directory: SweepDirectory
    verdict: Verdict
    summary: Summary | None


def begin(claim: Claim, where: PlaceName, resources: Resources, console: Console) -> Summary:
    """Trains a new claim's first batch.

    Raises:
        UserError: If the claim is not one about its workload, or as `run_sweep` does. Nothing has been written.
        PoolError, SweepError: As `run_sweep` does.
    """
    check_claim(claim)
    return run_sweep(claim.sweep(), where, resources, console, annotation=Annotation(claim=claim.stored()))


def decide(
    where: PlaceName,
    resources: Resources,
    console: Console,
    *,
    claim: Claim | None = None,
    budget: int | None = None,
    latest: Summary | None = None,
) -> Verified:
    """Goes on with a claim until it is decided, its budget is spent, the user stops it or the self-check fails.

    The budget is no part of what is tested, so it may be another each time.

    Args:
        where: The sweep directory that `begin` has made.
        resources, console: As for `resume_sweep`.
        claim: As the user gives it again; its budget counts.
        budget: In place of the claim's.
        latest: Of the batch that was just trained.

    Raises:
        UserError: If there is no claim in it, or another one; or as `resume_sweep` does.
        PoolError, SweepError: As `resume_sweep` does.
    """
    while True:
        directory = SweepDirectory.open(where)
        stored = _stored_claim(directory, claim)
        stored = stored.but(budget=max(budget or stored.budget, stored.batch * len(stored.groups)))
        is_stopped = latest is not None and (not latest.finished or latest.fault is not None)
        added = 0
        if directory.finished or is_stopped:
            found = read_verdict(directory, stored)
            more = stored.next_size(directory.stages[-1])
            is_over = found.decision != "undecided" or found.n_failed == found.n_trainings > 0
            if is_stopped or is_over or more is None:
                write_verdict(directory, found)
                return Verified(directory, found, latest)
            added = more - directory.stages[-1]
        latest = resume_sweep(where, resources, console, more_replicates=added)


def read_verdict(directory: SweepDirectory, claim: Claim) -> Verdict:
    """The verdict by the rows that a claim's sweep has."""
    ledger = Ledger(directory.place)
    # A ledger without rows has no columns of the workload's own, so no columns are requested.
    has_rows = ledger.trainings(columns=["replicate"]).num_rows > 0
    return verdict(claim, ledger.trainings(columns=columns(claim) if has_rows else []), directory.stages)


def check_claim(claim: Claim) -> None:
    """Checks that a claim is about what its workload can tell.

    Raises:
        SpecError: If it names an outcome or event that there is not, or a step that no training reaches.
    """
    workload = load_workload(claim.workload)
    for statement in claim.statements:
        for each in statement.quantities:
            if not each.is_event:
                check_outcome("states", each.name, workload.outcomes)
            events = {each.name} if each.is_event else set()
            for event in sorted(events | ({each.before} if each.before else set())):
                if event not in workload.events:
                    known = ", ".join(workload.events) or f"none: {claim.workload} declares no events"
                    fix = did_you_mean(event, workload.events, otherwise="name one of them, or an outcome")
                    raise SpecError("states", given=event, expected=f"the name of an event: {known}", fix=fix)
            default = workload.parameters.declared()["n_steps"].default
            last = claim.groups[each.group].get("n_steps", claim.fixed.get("n_steps", default))
            step = each.by if each.kind == "rate" else statement.bound
            if step is not None and step > last:
                fix = "state an earlier one, or raise n_steps"
                raise SpecError(
                    "states", given=statement.text, expected=f"a statement about steps up to n_steps={last}", fix=fix
                )


def _stored_claim(directory: SweepDirectory, given: Claim | None) -> Claim:
    stored = directory.claim
    if stored is None:
        raise UserError(
            "CLAIM",
            given=f"the directory {directory.place} of a sweep without a claim",
            expected="a directory that `attnsweep verify` has made, or the file of a claim",
            fix="write the claim to a file, as docs/verify.md describes",
        )
    if given is None:
        return stored
    if not stored.says_the_same(given):
        raise UserError(
            "--dir",
            given=f"the directory {directory.place}, which contains another claim: {stored.claim}",
            expected="a new directory, or a claim with unchanged groups, statements, batch, confidence and seed",
            fix="choose another --dir, or leave out the claim's file to continue the claim in the directory",
        )
    return given
