"""Checks the gradients of a workload, or of a sweep's trainings where they ended."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import pyarrow as pa

from attnsweep.orchestrator.inspection.gradient_report import GradientReport
from attnsweep.orchestrator.inspection.replay import recorded_tasks, retrain
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.gradients.check import check
from attnsweep.workloads.gradients.finding import Finding
from attnsweep.workloads.gradients.subject import Subject, after_some_steps, at_random_weights, at_weights
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.user_code import users_code

Say = Callable[[str], None]

_SEEDS = (0, 1)
_COLUMNS = ("trial", "replicate", "training_id", "outcome")
_WITHOUT_END = ("failed", "diverged", "pruned")
"""Outcomes of trainings whose end is nowhere to look at."""


def check_workload(workload: Workload[Any], values: Mapping[str, Value], say: Say, *, compiles: bool) -> GradientReport:
    """Checks two trainings of a workload: at random weights, and after a hundred evaluations of training.

    Args:
        workload: Any.
        values: Parameters of the trainings, by name; the others take their defaults. Gradients are checked in float64
            whatever `dtype` is.
        say: Told what begins.
        compiles: Whether to check compiled blocks too.

    Raises:
        UserError: If the workload does not accept the parameters, or if its code fails.
    """
    parameters = workload.parameters.resolve(values)
    trainings = [Training(parameters, seed) for seed in _SEEDS]
    seconds: dict[str, float] = {}
    with training_settings(), users_code(workload.name, "a workload that trains", "see attnsweep.check_workload"):
        say("training a hundred evaluations ...")
        with _timed(seconds, "training"):
            trained = after_some_steps(workload, trainings)
        subjects = [at_random_weights(workload, trainings)]
        if trained is None:
            say("these trainings diverge: their gradients are checked at random weights only")
        else:
            subjects.append(trained)
        findings = _checked(subjects, seconds, say, compiles=compiles)
    subject = " ".join([workload.name, *(f"{name}={value}" for name, value in values.items())])
    return GradientReport(subject=subject, findings=findings, seconds=seconds)


def check_sweep(directory: SweepDirectory, say: Say) -> GradientReport:
    """Checks the gradients of one training of each outcome, where it ended, and of the same shapes at random weights.

    No weights are stored, so the trainings are trained again.

    Args:
        directory: The sweep.
        say: Told what begins.

    Raises:
        UserError: If the workload is gone, or its code fails.
    """
    workload, seconds = load_workload_of(directory), {"training again": 0.0}
    subjects: list[Subject] = []
    with users_code(workload.name, "a workload that trains", "see attnsweep.check_workload"):
        for rows in _one_of_each_outcome(Ledger(directory.place), workload):
            names = ", ".join(f"{row['trial']}/{row['replicate']} ({row['outcome']})" for row in rows)
            say(f"training again: {names} ...")
            with _timed(seconds, "training again"):
                lanes, state = retrain(directory, [row["training_id"] for row in rows])
            with training_settings():
                ended = at_weights(workload, lanes.trainings, state, f"the ends of {names}")
                subjects += [at_random_weights(workload, lanes.trainings), *([ended] if ended else [])]
        with training_settings():
            findings = _checked(subjects, seconds, say, compiles=directory.engine == "blocks")
    return GradientReport(subject=directory.sweep, findings=findings, seconds=seconds)


def _checked(subjects: Sequence[Subject], seconds: dict[str, float], say: Say, *, compiles: bool) -> list[Finding]:
    findings: list[Finding] = []
    for subject in subjects:
        say(f"checking gradients at {subject.where} ...")
        with _timed(seconds, "checking"):
            findings += check(subject, compiles=compiles)
    return findings


def _one_of_each_outcome(ledger: Ledger, workload: Workload[Any]) -> Iterator[list[dict[str, Any]]]:
    """Rows of `trainings`, one of each outcome, those of one shape together. The choice does not change."""
    rows = [row for row in ledger.trainings(columns=_COLUMNS).to_pylist() if row["outcome"] not in _WITHOUT_END]
    rows.sort(key=lambda row: (row["outcome"], hashlib.blake2b(row["training_id"].encode()).digest()))
    chosen = [next(of_outcome) for _, of_outcome in groupby(rows, key=lambda row: row["outcome"])]
    whole = ledger.trainings(filter=pa.compute.field("training_id").isin([row["training_id"] for row in chosen]))
    shapes = {
        row["training_id"]: repr(task.training.parameters.static_key())
        for row, task in zip(whole.to_pylist(), recorded_tasks(workload, whole), strict=True)
    }
    chosen.sort(key=lambda row: shapes[row["training_id"]])
    for _, of_shape in groupby(chosen, key=lambda row: shapes[row["training_id"]]):
        yield list(of_shape)


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - started
