"""The chance of each outcome given a training's state at a step (the committor), from many continuations."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from attnsweep.orchestrator.analysis.answer import Answer, Record, table
from attnsweep.orchestrator.analysis.rates.intervals import RATE_COLUMNS, Rate, binomial_rate, share_label
from attnsweep.orchestrator.inspection.continuation import DRAWS, Change, Origin, Source
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.engine.checkpoint import Checkpoint
from attnsweep.workloads.errors import UserError

DEFAULT_N, DEFAULT_SIZE = 256, 0.01


@dataclass(frozen=True, slots=True)
class Share(Record):
    """How often continuations ended with an outcome."""

    json_keys = ("outcome", "**rate")

    outcome: str
    rate: Rate


@dataclass(frozen=True, kw_only=True, repr=False)
class Fork(Answer, Record):
    """The outcomes of many continuations of one training from a step.

    Attributes:
        redraw: What differs in them: `data`, `noise` (dropout masks) or `kick` (noise added to the parameters).
        size: The size of the kick, relative to the root mean square of each parameter tensor; `None` without a kick.
        shares: The number that ended with each outcome, with Wilson's 95% interval; the most frequent first.
        difference: How the training itself, continued with its own draws, differs at its end from the record; empty if
            it does not.
        notes: Reasons why the training's last digits may differ on this machine from those recorded.
        trainings: The continuations as rows of a ledger's `trainings`. `replicate` is the continuation's number, from
            1; `predicted_escape_step` is predicted from the kicked weights, null without a kick or without a formula
            for it.
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
        """0 if no continuation ended with it."""
        rates = {share.outcome: share.rate for share in self.shares}
        return rates.get(outcome) or binomial_rate(0, self.n)

    def to_arrow(self) -> pa.Table:
        """A row for each outcome."""
        return table({"outcome": str, **RATE_COLUMNS}, [(share.outcome, *share.rate.row) for share in self.shares])

    def print(self, console: Console) -> None:
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
    """As `OpenedSweep.fork`. `say` gets a line of progress before the work begins, with an estimate of its time.

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
    """As `fork`, from each of several steps.

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


def check_numbers(n: int, size: float) -> None:
    """Raises UserError if either is not above 0."""
    if n < 1:
        raise UserError(
            "--n", given=n, expected="a number of continuations from 1 on", fix=f"write for example --n {DEFAULT_N}"
        )
    if not 0 < size < float("inf"):
        expected = "a size above 0 of the kick (noise added to the weights)"
        raise UserError("--size", given=size, expected=expected, fix=f"write for example --size {DEFAULT_SIZE}")
