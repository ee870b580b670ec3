"""Estimates the chance that a training ends with an outcome, given its state at a step (the committor), by continuing
it from that step many times."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from attnsweep.orchestrator.analysis.answer import Answer, Record, table
from attnsweep.orchestrator.analysis.committors import Decided, share_decided
from attnsweep.orchestrator.analysis.rates.intervals import RATE_COLUMNS, Rate, binomial_rate, share_label
from attnsweep.orchestrator.inspection.continuation import DRAWS, Change, Origin, Source
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.engine.checkpoint import Checkpoint
from attnsweep.workloads.errors import UserError, did_you_mean
from attnsweep.workloads.vocabulary import PRUNED, Outcome, with_own

DEFAULT_N, DEFAULT_SIZE = 256, 0.01


@dataclass(frozen=True, slots=True)
class Share(Record):
    """One outcome, and how often a training had it when it was continued several times from the same step, as a number
    and as a share."""

    json_keys = ("outcome", "**rate")

    outcome: str
    rate: Rate


@dataclass(frozen=True, kw_only=True, repr=False)
class Fork(Answer, Record):
    """The outcomes of many continuations of one training from one of its steps.

    Attributes:
        origin: The training.
        step: The step from which the continuations begin.
        redraw: What differs in them: `data`, `noise` (dropout masks) or `kick` (noise added to the parameters).
        size: The size of the kick, relative to the root mean square of each parameter tensor; `None` without a kick.
        n: The number of continuations.
        shares: The number that ended with each outcome, with Wilson's 95% interval; the most frequent first.
        difference: How the training itself, continued with its own draws, differs at its end from the record; empty if
            it does not.
        notes: Reasons why the training's last digits may differ on this machine from those recorded.
        trainings: The continuations as rows of a ledger's `trainings`. `replicate` is the continuation's number, from
            1; `predicted_escape_step` is predicted from the kicked weights, null without a kick or without a formula
            for it.
        curves: The continuations' rows of `curves`.
    """

    json_keys = ("**origin", "step", "redraw", "size", "n", "shares", "difference", "notes")

    origin: Origin
    step: int
    redraw: Change
    size: float | None
    n: int
    shares: tuple[Share, ...]
    difference: str
    notes: tuple[str, ...]
    trainings: pa.Table = field(compare=False)
    curves: pa.Table = field(compare=False)

    def rate(self, outcome: str) -> Rate:
        """Returns the share of continuations that ended with an outcome, with its interval; 0 if none did."""
        rates = {share.outcome: share.rate for share in self.shares}
        return rates.get(outcome) or binomial_rate(0, self.n)

    def to_arrow(self) -> pa.Table:
        """Returns a table with a row for each outcome: how many continuations ended with it."""
        return table({"outcome": str, **RATE_COLUMNS}, [(share.outcome, *share.rate.row) for share in self.shares])

    def print(self, console: Console) -> None:
        """Prints how often one training, continued many times from a step, ended with each outcome, with intervals."""
        heading = f"{self.origin}; {self.n} continuations from step {self.step} with {DRAWS[self.redraw]}"
        for line in (heading, *self.notes):
            console.print(line, soft_wrap=True, markup=False)
        grid = Table("outcome", "of", "share (95% interval)", box=None, header_style="bold")
        for share in self.shares:
            grid.add_row(share.outcome, f"{share.rate.k} of {share.rate.n}", share_label(share.rate))
        console.print(grid)
        if self.difference:
            console.print(f"continued with its own draws it {self.difference}", soft_wrap=True, markup=False)

    def _in_words(self) -> str:
        shares = ", ".join(f"{share.outcome} {share_label(share.rate)}" for share in self.shares)
        return f"{self.origin.name} from step {self.step}, {self.redraw}: {shares} of {self.n}"


def fork(
    directory: SweepDirectory,
    name: str,
    *,
    step: int,
    redraw: Change = "data",
    n: int = DEFAULT_N,
    size: float = DEFAULT_SIZE,
    say: Callable[[str], None] = lambda _: None,
) -> Fork:
    """Continues one training of a sweep from a step many times, as `OpenedSweep.fork` describes.

    Args:
        name: The training, as `find_training` accepts it.
        step: The step from which the continuations begin.
        redraw, n, size: As in `OpenedSweep.fork`.
        say: Gets a line of progress before the work begins, with an estimate of its time.

    Raises:
        UserError: If there is no such training or step, it failed, or nothing is drawn that could be drawn anew.
    """
    (found,) = forks(directory, name, steps=[step], redraw=redraw, n=n, size=size, say=say)
    return found


def forks(
    directory: SweepDirectory,
    name: str,
    *,
    steps: Sequence[int],
    redraw: Change = "data",
    n: int = DEFAULT_N,
    size: float = DEFAULT_SIZE,
    say: Callable[[str], None] = lambda _: None,
) -> list[Fork]:
    """Continues a training many times from each of several steps.

    To get its states at these steps, the training is trained again only once.

    Args:
        steps: The steps from which continuations begin.
        directory, name, redraw, n, size, say: As in `fork`.

    Raises:
        UserError: As `fork`.
    """
    check_numbers(n, size)
    if not steps:
        return []
    source = Source(directory, name, redraw, size)
    states = source.states(steps)
    return [_forked(source, states, step, n, say) for step in steps]


def _forked(source: Source, states: Mapping[int, Checkpoint], step: int, n: int, say: Callable[[str], None]) -> Fork:
    say(f"{n} continuations of {source.origin.n_steps - step:,} steps: about {source.seconds(step, n):.1f} s ...")
    continued = source.continued(states, step, range(n + 1))
    others = pc.field("replicate") > 0
    trainings, curves = continued.rows.trainings.filter(others), continued.rows.curves.filter(others)
    counts = Counter(trainings["outcome"].to_pylist())
    return Fork(
        origin=source.origin,
        step=step,
        redraw=source.change,
        size=source.size if source.change == "kick" else None,
        n=n,
        shares=tuple(Share(outcome, binomial_rate(k, n)) for outcome, k in counts.most_common()),
        difference=continued.difference,
        notes=source.notes,
        trainings=trainings,
        curves=curves,
    )


def check_outcome(outcome: str, own: Mapping[str, Outcome]) -> None:
    """Checks that a name is one of a workload's outcomes.

    Args:
        own: The outcomes that the workload declares in addition to those of all workloads.

    Raises:
        UserError: If the name is no outcome of the workload.
    """
    known = [*with_own(own)]
    if outcome not in known:
        advice = did_you_mean(outcome, known, otherwise="leave it out for the training's own")
        raise UserError("--outcome", given=outcome, expected=f"one of {', '.join(known)}", fix=advice)


def check_numbers(n: int, size: float) -> None:
    """Checks that the number of continuations and the size of a kick (noise added to the parameters) are above 0.

    Raises:
        UserError: If either is not above 0.
    """
    if n < 1:
        raise UserError(
            "--n", given=n, expected="a number of continuations from 1 on", fix=f"write for example --n {DEFAULT_N}"
        )
    if not 0 < size < float("inf"):
        raise UserError(
            "--size",
            given=size,
            expected="a size above 0 of the kick (noise added to the weights)",
            fix=f"write for example --size {DEFAULT_SIZE}",
        )


@dataclass(frozen=True, slots=True)
class Committor(Record):
    """The chance of an outcome given the state of one training at a step, estimated from continuations.

    Attributes:
        replicate: The training's replicate.
        recorded: The outcome with which the training itself ended.
        step: The step.
        rate: The number of continuations with the outcome, with Wilson's 95% interval. If the training had ended before
            the step, all continuations count with its own outcome.
    """

    json_keys = ("replicate", "recorded", "step", "**rate")

    replicate: int
    recorded: str
    step: int
    rate: Rate


@dataclass(frozen=True, kw_only=True, repr=False)
class Committors(Answer, Record):
    """The chance of an outcome for each training of one trial, given the training's state at each of several steps. It
    is estimated by continuing the training many times from the step.

    Attributes:
        sweep, trial: The sweep's name, and the trial.
        outcome: The outcome in question.
        redraw: What differs in continuations: `data`, `noise` (dropout masks) or `kick` (noise added to the
            parameters).
        size: The size of a kick; `None` without a kick.
        n: The number of continuations of each training from each step.
        decided: By step, the share of the outcome that the states at this step decide.
        committors: One for each step and training.
        differences: How trainings that are continued with their own draws end otherwise than recorded.
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
        """Returns, for each training of the trial in the order of replicates, the estimated chance that it ends with a
        certain outcome, given its state at a step."""
        return tuple(committor for committor in self.committors if committor.step == step)

    def to_arrow(self) -> pa.Table:
        """Returns a table with a row for each step and training: the estimated chance of the outcome, given the
        training's state at the step."""
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
    """Estimates the chance of an outcome for each training of one trial, given the training's state at each of `steps`,
    by continuing the training many times from the step.

    Args:
        trial, outcome, redraw, n, size: As in `OpenedSweep.committors`.
        steps: The steps from which continuations begin.
        say: Gets a line of progress for each training.

    Raises:
        UserError: As `fork`; if the trial has fewer than two trainings, one of them failed or was pruned, or the
            workload has no such outcome.
    """
    check_numbers(n, size)
    if n < 2:
        raise UserError(
            "n",
            given=n,
            expected="at least 2 continuations, because one cannot show the effect of chance",
            fix="write for example n=16",
        )
    check_outcome(outcome, load_workload_of(directory).outcomes)
    rows = _trainings(directory, trial)
    found, differences = [], []
    for row in rows:
        name = f"{trial}/{row['replicate']}"
        say(f"{name} of {len(rows)} trainings: {n} continuations from each of {len(steps)} steps ...")
        while_training = [step for step in steps if step < row["n_steps"]]
        found_forks = forks(directory, name, steps=while_training, redraw=redraw, n=n, size=size)
        by_step = {fork.step: fork for fork in found_forks}
        differences += [f"{name} {fork.difference}" for fork in found_forks if fork.difference]
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
