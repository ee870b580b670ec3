"""Checks that trainings were pruned if and where the study says that their trial was."""

import pyarrow.compute as pc

from attnsweep.orchestrator.audit.check_trials import RESTORE
from attnsweep.orchestrator.audit.evidence import Books
from attnsweep.orchestrator.audit.problems import Faults, Problem
from attnsweep.orchestrator.running.study import pruned_at
from attnsweep.workloads.vocabulary import PRUNED

_STEP = "pruned trainings with another step than the study has"
_BEYOND = "pruned trainings with more steps than those at which they were pruned"
_WITHOUT = "trainings with a step at which they were pruned and another outcome, or the outcome without a step"


def compare_pruned(books: Books) -> tuple[Problem, ...]:
    """Finds differences between the study's decisions to prune trainings and the trainings that are pruned in the
    ledger.

    If all trainings of a trial share one pack, they end at the step of the decision; in several packs, some may end at
    a later probe.
    """
    if "pruned_step" not in books.rows.column_names:
        # A sweep of a version without pruning has no column `pruned_step`, so there is nothing to compare.
        return ()
    faults = Faults(dict.fromkeys((_STEP, _BEYOND, _WITHOUT), RESTORE))
    decided = {trial.number: pruned_at(trial) for trial in books.asked}
    for row in books.rows.filter((pc.field("outcome") == PRUNED) | pc.field("pruned_step").is_valid()).to_pylist():
        name, step = f"{row['trial']}/{row['replicate']}", row["pruned_step"]
        if step is None or row["outcome"] != PRUNED:
            faults.add(_WITHOUT, name)
            continue
        earliest = decided.get(row["trial"])
        packs = books.rows["pack"].slice(books.places[row["trial"]].start, len(books.places[row["trial"]])).unique()
        if earliest is None or step < earliest or (step > earliest and len(packs) == 1):
            faults.add(_STEP, f"{name} ({step}, not {earliest})")
        if row["n_steps"] > step:
            faults.add(_BEYOND, f"{name} ({row['n_steps']}, not {step})")
    return faults.problems()
