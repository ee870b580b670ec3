"""`attnsweep verify`: seeds for a claim's groups, batch by batch, until the evidence decides or the budget is spent.

A claim is one ordinary sweep, with a trial for each group. Each batch is one run of it, and each further one adds
replicates; so what is said of interrupted and resumed sweeps, audits and replays holds for claims.
"""

from dataclasses import dataclass

from rich.console import Console

from attnsweep.orchestrator.analysis.verdicts.verdict import Verdict, read_verdict
from attnsweep.orchestrator.report.verdict_page import write_verdict
from attnsweep.orchestrator.running.preflight.claim import check_claim
from attnsweep.orchestrator.running.session import PREDECESSOR_SECONDS, resume_sweep, run_sweep
from attnsweep.orchestrator.running.summary import Summary
from attnsweep.orchestrator.storage.annotation import Annotation
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces.claim import Claim
from attnsweep.workloads.errors import UserError


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
        claim: As the user gives it again; its budget counts. Then another process that holds the sweep is waited for,
            as it may be a predecessor that was killed: a scheduler repeats the command.
        budget: In place of the claim's.
        latest: Of the batch that was just trained.

    Raises:
        UserError: If there is no claim in it, or another one; or as `resume_sweep` does.
        PoolError, SweepError: As `resume_sweep` does.
    """
    patience = 0.0 if claim is None else PREDECESSOR_SECONDS
    while True:
        directory = SweepDirectory.open(where)
        stored = _stored_claim(directory, claim)
        stored = stored.but(budget=max(budget or stored.budget, stored.batch * len(stored.groups)))
        is_stopped = latest is not None and (not latest.finished or latest.fault is not None)
        wanted = 0
        if directory.finished or is_stopped:
            found = read_verdict(directory, stored)
            more = stored.next_size(directory.stages[-1])
            is_over = found.decision != "undecided" or found.n_failed == found.n_trainings > 0
            if is_stopped or is_over or more is None:
                write_verdict(directory, found)
                return Verified(directory, found, latest)
            wanted = more
        latest = resume_sweep(where, resources, console, replicates=wanted, patience=patience)


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
