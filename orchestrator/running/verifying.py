"""`attnsweep verify`: trains batch after batch until the evidence decides on a claim, or the budget is spent.

The trainings are an ordinary sweep with a trial for each group. Each batch is one run; further ones add replicates.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from attnsweep.orchestrator.analysis.verdict import Verdict, read_verdict
from attnsweep.orchestrator.analysis.verdict_rows import layer_number, no_metric, quantities
from attnsweep.orchestrator.report.verdict_page import write_verdict
from attnsweep.orchestrator.running.preflight import first_probe, sampled
from attnsweep.orchestrator.running.session import PREDECESSOR_SECONDS, resume_sweep, run_sweep
from attnsweep.orchestrator.running.summary import Summary
from attnsweep.orchestrator.storage.annotation import Annotation
from attnsweep.orchestrator.storage.copies import name_of
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces.claim import Claim
from attnsweep.search_spaces.statement import Quantity
from attnsweep.search_spaces.validation import check_outcome
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.errors import SpecError, UserError, did_you_mean
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.vocabulary import ROLES


@dataclass(frozen=True)
class Verified:
    """A verdict; `summary` is of the last batch that this run trained, `None` if nothing had to be trained."""

    directory: SweepDirectory
    verdict: Verdict
    summary: Summary | None


def begin(claim: Claim, where: PlaceName, resources: Resources, console: Console) -> Summary:
    """Trains the first batch for a new claim. Raises UserError if it does not fit its workload, and as `run_sweep`."""
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
    """Trains further batches until a claim is decided, its budget is spent, all trainings fail, the user stops or the
    self-check fails.

    Args:
        claim: Given if the user names its file again; its budget then replaces the stored one, and the call waits for
            the lock of a driver that a scheduler may have killed.
        budget: Replaces the claim's own.
        latest: The summary of the batch that was just trained.
    """
    patience = 0.0 if claim is None else PREDECESSOR_SECONDS
    while True:
        directory = SweepDirectory.open(where)
        stored = _stored_claim(directory, claim)
        # The first batch is trained in any case.
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


def _stored_claim(directory: SweepDirectory, named: Claim | None) -> Claim:
    """With the budget of the one that the user names again. Raises UserError if that is another claim."""
    stored = directory.claim
    if stored is None:
        expected, fix = "a directory that `attnsweep verify` has made, or the file of a claim", "see docs/claims.md"
        raise UserError(
            "CLAIM", given=f"{name_of(directory.place)}, a sweep without a claim", expected=expected, fix=fix
        )
    if named is None:
        return stored
    if not stored.says_the_same(named):
        held, fix = f"{name_of(directory.place)}, which holds another claim: {stored.claim}", "choose another --dir"
        expected = "a new directory, or one with this claim, whose sentence, source and budget alone may differ"
        raise UserError("--dir", given=held, expected=expected, fix=f"{fix}, or give this one in place of the file")
    return named


def check_claim(claim: Claim) -> None:
    """Raises SpecError unless the workload measures what a claim is about, at steps that its trainings reach."""
    workload = load_workload(claim.workload)
    for statement in claim.statements:
        for quantity in statement.quantities:
            _check_names(quantity, claim, workload)
            step = quantity.by if quantity.kind == "rate" or statement.is_of_values else statement.bound
            last = workload.parameters.resolve({**claim.fixed, **claim.groups[quantity.group]}).n_steps
            if step is not None and step > last:
                fix = "state an earlier one, or raise n_steps"
                raise SpecError("states", given=statement.text, expected=f"a step up to n_steps={last}", fix=fix)
    metrics = sorted({each.name for each in quantities(claim) if each.what == "value"})
    if not metrics:
        return
    ((training, *_), *_) = sampled(claim.sweep(), workload)
    known = sorted(first_probe(workload, training).metrics)
    for name in metrics:
        # BLEU is computed from the translations that trainings write at their end.
        if name not in known and not name.startswith("bleu_"):
            raise no_metric(name, known)


def _check_names(quantity: Quantity, claim: Claim, workload: Workload[Any]) -> None:
    if quantity.what == "outcome":
        check_outcome("states", quantity.name, workload.outcomes)
    if quantity.what == "event":
        for event in (quantity.name, quantity.before):
            if event is not None and event not in workload.events:
                raise _unknown("an event", event, workload.events, f"workload {claim.workload} declares no events")
    if quantity.what == "role":
        scored = workload.head_score_names
        roles = {name for name, role in ROLES.items() if role.score in scored}.union(scored)
        if quantity.name not in roles:
            raise _unknown("a head role", quantity.name, sorted(roles), f"workload {claim.workload} scores no heads")
        layer_number(claim.workload, quantity.layer)


def _unknown(kind: str, name: str, known: Collection[str], if_none: str) -> SpecError:
    expected = f"{kind}: {', '.join(known) or f'none: {if_none}'}"
    fix = did_you_mean(name, known, otherwise="name one of them, or an outcome")
    return SpecError("states", given=name, expected=expected, fix=fix)
