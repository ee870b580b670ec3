"""Runs `attnsweep verify`: trains a claim's groups, batch by batch, until the evidence decides or the budget is spent.

A claim is one ordinary sweep, with a trial for each group. Each batch is one run of the sweep, and each further batch
adds replicates. Claims can therefore be interrupted, resumed, audited and replayed like other sweeps.
"""

from dataclasses import dataclass

from rich.console import Console

from attnsweep.orchestrator.analysis.verdict import Verdict, read_verdict
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
    """The verdict on a claim after a run of `attnsweep verify`.

    Attributes:
        directory: The claim's sweep directory.
        verdict: The verdict from the trainings recorded so far.
        summary: The summary of the last batch that this run trained; `None` if nothing had to be trained.
    """

    directory: SweepDirectory
    verdict: Verdict
    summary: Summary | None


def begin(claim: Claim, where: PlaceName, resources: Resources, console: Console) -> Summary:
    """Trains a new claim's first batch.

    Raises:
        UserError: If the claim does not fit its workload, or as in `run_sweep`. Nothing has been written then.
        PoolError, SweepError: As in `run_sweep`.
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
    """Trains further batches until a claim is decided, its budget is spent, the user stops or the self-check fails.

    The verdict's error rate does not depend on the budget, so each call may give another budget.

    Args:
        where: The sweep directory that `begin` has made.
        resources, console: As for `resume_sweep`.
        claim: The claim, if the user names its file again; its budget then replaces the stored one. In this case the
            call waits for another process that holds the sweep's lock: a scheduler that repeats a command may do so
            before the lock of the killed process expires.
        budget: A budget that replaces the claim's own.
        latest: The summary of the batch that was just trained.

    Raises:
        UserError: If the directory has no claim, or another claim than `claim`; or as in `resume_sweep`.
        PoolError, SweepError: As in `resume_sweep`.
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
            given=f"{directory.place}, a sweep without a claim",
            expected="a directory that `attnsweep verify` has made, or the file of a claim",
            fix="write a claim's file, as docs/verify.md describes, and give its path",
        )
    if given is None:
        return stored
    if not stored.says_the_same(given):
        raise UserError(
            "--dir",
            given=f"{directory.place}, which holds another claim: {stored.claim}",
            expected="a new directory, or this claim: groups, statements, batch, confidence and seed as they were",
            fix="choose another --dir; or give the directory in place of the claim's file to continue the stored claim",
        )
    return given
