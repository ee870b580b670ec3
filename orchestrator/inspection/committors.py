"""The committors of all trainings of one trial at some steps, and how much of an outcome is decided there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from attnsweep.orchestrator.analysis.answer import Answer, Record, table
from attnsweep.orchestrator.analysis.committors import Decided, share_decided
from attnsweep.orchestrator.analysis.rates.intervals import RATE_COLUMNS, Rate, binomial_rate
from attnsweep.orchestrator.inspection.continuation import Change
from attnsweep.orchestrator.inspection.fork import DEFAULT_SIZE, check_numbers, forks
from attnsweep.orchestrator.inspection.sealing import check_outcome
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.vocabulary import PRUNED


@dataclass(frozen=True, slots=True)
class Committor(Record):
    """P(outcome | the state of one training at a step), from its continuations.

    Attributes:
        replicate: The training's replicate.
        recorded: The outcome with which the training itself ended.
        step: The step.
        rate: The number of continuations with the outcome, with Wilson's 95% interval. Of a training that had ended
            before the step all have its own outcome.
    """

    json_keys = ("replicate", "recorded", "step", "**rate")

    replicate: int
    recorded: str
    step: int
    rate: Rate


@dataclass(frozen=True, kw_only=True, repr=False)
class Committors(Answer, Record):
    """The committors of the trainings of one trial, and the share of the outcome that their states decide.

    Attributes:
        sweep, trial: The sweep's name, and the trial.
        outcome: The outcome in question.
        redraw: What differs in continuations: `data`, `noise` or `kick`.
        size: The size of a kick; `None` without a kick.
        n: The number of continuations of each training from each step.
        decided: The share of the outcome that is decided, by step.
        committors: One for each step and training.
        differences: What in the trainings themselves, continued with their own draws, ends otherwise than recorded.
    """

    sweep: str
    trial: int
    outcome: str
    redraw: Change
    size: float | None
    n: int
    decided: Mapping[int, Decided]
    committors: tuple[Committor, ...]
    differences: tuple[str, ...]

    def at(self, step: int) -> tuple[Committor, ...]:
        """The committors at a step, in the order of replicates."""
        return tuple(committor for committor in self.committors if committor.step == step)

    def to_arrow(self) -> pa.Table:
        """A row for each step and training."""
        columns = {"step": int, "replicate": int, "recorded": str, **RATE_COLUMNS}
        rows = [(each.step, each.replicate, each.recorded, *each.rate.row) for each in self.committors]
        return table(columns, rows)

    def _in_words(self) -> str:
        shares = ", ".join(f"{share.label} at step {step}" for step, share in self.decided.items())
        return f"{self.outcome} in trial {self.trial} of {self.sweep}, {self.redraw}: decided {shares}"


def committors(
    directory: SweepDirectory,
    trial: int,
    *,
    steps: Sequence[int],
    outcome: str = "solved",
    redraw: Change = "data",
    n: int = 16,
    size: float = DEFAULT_SIZE,
    say: Callable[[str], None] = lambda _: None,
) -> Committors:
    """Forks all trainings of a trial at some steps.

    Args:
        directory: The sweep.
        trial: The trial: trainings of one configuration.
        steps: The steps from which continuations begin.
        outcome: The outcome in question.
        redraw, size: As in `fork`.
        n: The number of continuations of each training from each step, at least 2.
        say: Gets a line of progress for each training.

    Raises:
        UserError: As `fork`; if the trial has fewer than two trainings, one of them failed or was pruned, or the
            workload has no such outcome.
    """
    check_numbers(n, size)
    if n < 2:
        raise UserError("n", given=n, expected="2 continuations or more: one says nothing of chance", fix="n=16")
    check_outcome(outcome, load_workload_of(directory).outcomes)
    rows = _trainings(directory, trial)
    found, differences = [], []
    for row in rows:
        name = f"{trial}/{row['replicate']}"
        say(f"{name} of {len(rows)} trainings: {n} continuations from each of {len(steps)} steps ...")
        while_training = [step for step in steps if step < row["n_steps"]]
        by_step = {
            fork.step: fork
            for fork in (
                forks(directory, name, steps=while_training, redraw=redraw, n=n, size=size) if while_training else ()
            )
        }
        differences += [f"{name} {fork.difference}" for fork in by_step.values() if fork.difference]
        ended = binomial_rate(n if row["outcome"] == outcome else 0, n)
        rates = {step: by_step[step].rate(outcome) if step in by_step else ended for step in steps}
        found += [Committor(row["replicate"], row["outcome"], step, rate) for step, rate in rates.items()]
    counts = {step: [each.rate.k for each in found if each.step == step] for step in steps}
    return Committors(
        sweep=directory.sweep,
        trial=trial,
        outcome=outcome,
        redraw=redraw,
        size=size if redraw == "kick" else None,
        n=n,
        decided={step: share_decided(k, [n] * len(k)) for step, k in counts.items()},
        committors=tuple(sorted(found, key=lambda each: (each.step, each.replicate))),
        differences=tuple(differences),
    )


def _trainings(directory: SweepDirectory, trial: int) -> list[dict[str, Any]]:
    """The rows of a trial's trainings, in the order of replicates."""
    trainings = Ledger(directory.place).trainings(filter=pc.field("trial") == trial)
    rows: list[dict[str, Any]] = trainings.sort_by("replicate").to_pylist()
    cut = [row for row in rows if row["outcome"] in ("failed", PRUNED)]
    if len(rows) < 2 or cut:
        raise UserError(
            "trial",
            given=f"{trial}, with {len(rows)} trainings, {len(cut)} of them failed or pruned",
            expected="a trial with two trainings or more, none of them failed or pruned",
            fix='see: attnsweep query DIR "select trial, outcome, count(*) from trainings group by all"',
        )
    return rows
