"""Checks whether gradients are correct: those of a workload, or of a sweep's trainings at their end."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from attnsweep.orchestrator.analysis.answer import Record
from attnsweep.orchestrator.inspection.kept_weights import by_shape, ends_of, stacked
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.gradients.check import Finding, check
from attnsweep.workloads.gradients.subject import Subject, after_some_steps, at_random_weights, at_weights
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.user_code import users_code

Say = Callable[[str], None]

_SEEDS = (0, 1)
_EXPECTED, _FIX = "a workload that trains, and identities that fit its module", "see attnsweep.check_workload"
_COLUMNS = ("training_id", "outcome")
_WITHOUT_END = ("failed", "diverged", "pruned")
"""The outcomes of trainings without a proper end. Their gradients are not checked at the end."""
_OF_ANY_WORKLOAD = {"fused", "blocks", "compiled", "differences"}
_MOST_CHARACTERS = 60
"""The longest parameter name in a printed row; messages and JSON have the names in full."""
_UNJUDGED = ("kink", "rounding", "skipped")


@dataclass(frozen=True, kw_only=True)
class GradientReport(Record):
    """The results of checking the gradients of a workload or a sweep, and the seconds that the checks took.

    Attributes:
        subject: The workload and its parameters, or the sweep.
        findings: The results, one for each printed row.
        seconds: The time spent, by activity.
    """

    json_keys = ("subject", "clean=is_clean", "verdicts", "seconds", "checks=findings")

    subject: str
    findings: Sequence[Finding]
    seconds: Mapping[str, float]

    @property
    def failed(self) -> list[Finding]:
        """The results that show a wrong gradient or another fault."""
        return [finding for finding in self.findings if finding.verdict == "fails"]

    @property
    def is_clean(self) -> bool:
        return not self.failed

    @property
    def verdicts(self) -> Counter[str]:
        """The number of checks with each verdict, such as `fails`."""
        return Counter(finding.verdict for finding in self.findings)

    @property
    def summary(self) -> str:
        """One line: the number of gradient checks with each verdict, the largest errors of those that passed, and the
        seconds spent."""
        largest: dict[str, float] = {}
        for finding in self.findings:
            if finding.verdict == "holds" and finding.error is not None:
                largest[finding.check] = max(finding.error, largest.get(finding.check, 0.0))
        words = ", ".join(f"{verdict} {n}" for verdict, n in self.verdicts.most_common())
        seconds = ", ".join(f"{name} {spent:.1f} s" for name, spent in self.seconds.items())
        return f"{words}; largest errors: {', '.join(f'{k} {v:.0e}' for k, v in largest.items()) or 'none'}; {seconds}"

    def print(self, console: Console) -> None:
        """Prints a row for each gradient check, then the messages of the failed ones."""
        width = min(max([len(finding.parameter) for finding in self.findings] + [len("parameter")]), _MOST_CHARACTERS)
        lines = [self.subject, f" verdict  check           {'parameter':{width}}    error  threshold  compared with"]
        for where, findings in groupby(self.findings, key=lambda finding: finding.where):
            lines += [f"at {where}:", *(_row(finding, width) for finding in findings)]
        lines += [
            f"- {finding.check} of {finding.parameter}, {finding.where}: {finding.message}" for finding in self.failed
        ]
        if not {finding.check for finding in self.findings} - _OF_ANY_WORKLOAD:
            lines.append("this workload declares no identities; with some, a wrong mask or norm is seen too")
        for line in (*lines, self.summary):
            console.print(line, soft_wrap=True, markup=False)


def check_workload(workload: Workload[Any], values: Mapping[str, Value], say: Say, *, compiles: bool) -> GradientReport:
    """Checks the gradients of a workload on two trainings with different seeds: at random weights, and at the weights
    after a hundred evaluations of the loss in training.

    Args:
        values: Parameters of the trainings, by name; the others take their defaults. Gradients are checked in float64
            whatever `dtype` is.
        say: Called with a message when a part begins.
        compiles: Whether to check compiled blocks too.

    Raises:
        UserError: If the workload does not accept the parameters, or if its code fails.
    """
    parameters = workload.parameters.resolve(values)
    trainings = [Training(parameters, seed) for seed in _SEEDS]
    seconds: dict[str, float] = {}
    with training_settings(), users_code(workload.name, _EXPECTED, _FIX):
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
    """Checks the gradients of one training of each outcome in a sweep: at its final weights, and at random weights.

    Trainings whose weights were not kept are trained again.

    Args:
        say: Called with a message when a part begins.

    Raises:
        UserError: If the workload is gone, or its code fails.
    """
    workload, seconds = load_workload_of(directory), {"training again": 0.0}
    subjects: list[Subject] = []
    with users_code(workload.name, _EXPECTED, _FIX), training_settings():
        for group in by_shape(directory, _one_of_each_outcome(Ledger(directory.place))):
            rows, trainings = zip(*group, strict=True)
            names = ", ".join(f"{row['trial']}/{row['replicate']} ({row['outcome']})" for row in rows)
            say(f"training again, unless their weights were kept: {names} ...")
            with _timed(seconds, "training again"):
                ends = ends_of(directory, [row["training_id"] for row in rows])
            for row, end in zip(rows, ends, strict=True):
                if end.difference:
                    say(f"{row['trial']}/{row['replicate']}: {end.difference}")
            state = stacked([end.state for end in ends])
            ended = at_weights(workload, trainings, state, f"the ends of {names}")
            subjects += [at_random_weights(workload, trainings), *([ended] if ended else [])]
        findings = _checked(subjects, seconds, say, compiles=directory.engine == "blocks")
    return GradientReport(subject=directory.sweep, findings=findings, seconds=seconds)


def _checked(subjects: Sequence[Subject], seconds: dict[str, float], say: Say, *, compiles: bool) -> list[Finding]:
    findings: list[Finding] = []
    for subject in subjects:
        say(f"checking gradients at {subject.where} ...")
        with _timed(seconds, "checking"):
            findings += check(subject, compiles=compiles)
    return findings


def _one_of_each_outcome(ledger: Ledger) -> pa.Table:
    """Chooses one training for each outcome and returns their rows of the table `trainings`. The choice is
    pseudo-random, but the same each time."""
    rows = [row for row in ledger.trainings(columns=_COLUMNS).to_pylist() if row["outcome"] not in _WITHOUT_END]
    rows.sort(key=lambda row: (row["outcome"], hashlib.blake2b(row["training_id"].encode()).digest()))
    chosen = [next(group)["training_id"] for _, group in groupby(rows, key=lambda row: row["outcome"])]
    return ledger.trainings(filter=pc.field("training_id").isin(chosen))


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - started


def _row(finding: Finding, width: int) -> str:
    verdict = finding.verdict.upper() if finding.verdict == "fails" else finding.verdict
    error = "        " if finding.error is None else f"{finding.error:8.1e}"
    text = finding.message if finding.verdict in _UNJUDGED else finding.name
    parameter = finding.parameter if len(finding.parameter) <= width else f"{finding.parameter[: width - 3]}..."
    return f" {verdict:8} {finding.check:15} {parameter:{width}} {error}      {finding.threshold:.0e}  {text}"
