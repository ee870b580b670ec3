"""Whether a claim is about what its workload can tell."""

from collections.abc import Collection, Sequence
from typing import Any

from attnsweep.orchestrator.analysis.verdict_rows import layer_number, no_metric, quantities
from attnsweep.orchestrator.running.preflight.sample import Sample
from attnsweep.search_spaces.claim import Claim
from attnsweep.search_spaces.statement import Quantity
from attnsweep.search_spaces.validation import check_outcome
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.errors import SpecError, did_you_mean
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.user_code import users_code
from attnsweep.workloads.vocabulary import ROLES


def check_claim(claim: Claim) -> None:
    """Checks that a claim is about what its workload can tell.

    Raises:
        SpecError: If it names an outcome, event, role, layer or metric that there is not, or a step that no training
            reaches.
    """
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
    if metrics:
        _check_metrics(metrics, claim, workload)


def _check_names(quantity: Quantity, claim: Claim, workload: Workload[Any]) -> None:
    if quantity.what == "outcome":
        check_outcome("states", quantity.name, workload.outcomes)
    if quantity.what == "event":
        for event in (quantity.name, quantity.before):
            if event is not None and event not in workload.events:
                raise _unknown("event", event, workload.events, f"{claim.workload} declares no events")
    if quantity.what == "role":
        scored = workload.head_score_names
        roles = {name for name, role in ROLES.items() if role.score in scored}.union(scored)
        if quantity.name not in roles:
            raise _unknown("role", quantity.name, sorted(roles), f"{claim.workload} scores no such head")
        layer_number(claim.workload, quantity.layer)


def _unknown(kind: str, name: str, known: Collection[str], if_none: str) -> SpecError:
    expected = f"an {kind}: " if kind == "event" else f"a {kind}: "
    fix = did_you_mean(name, known, otherwise="name one of them, or an outcome")
    return SpecError("states", given=name, expected=expected + (", ".join(known) or f"none: {if_none}"), fix=fix)


def _check_metrics(names: Sequence[str], claim: Claim, workload: Workload[Any]) -> None:
    """Measures the start of one training. BLEU is of sentences that trainings write at their end."""
    ((training, *_), *_) = Sample.of(claim.sweep(), workload).shapes
    pack = Pack(workload, [training])
    with training_settings(), users_code(f"{claim.workload}: measure", "metrics by name", "correct it"):
        pack.advance(1, n_probes=1)
    known = sorted(pack.result().evidence.metrics)
    for name in names:
        if name not in known and not name.startswith("bleu_"):
            raise no_metric(name, known)
