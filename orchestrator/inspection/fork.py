"""The committor of a training at a step: how its continuations from there end, each with its own draws."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from attnsweep.orchestrator.analysis.answer import Answer, Record, table
from attnsweep.orchestrator.analysis.rates.intervals import RATE_COLUMNS, Rate, binomial_rate, share_label
from attnsweep.orchestrator.inspection.continuation import DRAWS, Change, Origin, Source
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.errors import UserError

DEFAULT_N, DEFAULT_SIZE = 256, 0.01


@dataclass(frozen=True, slots=True)
class Share(Record):
    """How many continuations ended with an outcome."""

    json_keys = ("outcome", "**rate")

    outcome: str
    rate: Rate


@dataclass(frozen=True, kw_only=True, repr=False)
class Fork(Answer, Record):
    """Continuations of one training from a step of it.

    Attributes:
        origin: The training.
        step: Where the continuations begin.
        redraw: What differs in them: `data`, `noise` or `kick`.
        size: Of the kick, relative to the size of each parameter tensor; `None` without one.
        n: How many there are.
        shares: How many ended with each outcome, with Wilson's 95% interval; the most frequent first.
        difference: Empty, or in what the training itself, continued with its own draws, ends otherwise than recorded.
        notes: Why its last digits may differ here from those recorded.
        trainings: The continuations as rows of a ledger's `trainings`; `replicate` is the number, from 1.
        curves: Their rows of `curves`.
    """

    json_keys = (
        "**origin",
        "step",
        "redraw",
        "size",
        "n",
        "shares",
        "difference",
        "notes",
    )

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
        """The share of continuations with an outcome, which may be one that none had."""
        found = {each.outcome: each.rate for each in self.shares}
        return found.get(outcome) or binomial_rate(0, self.n)

    def to_arrow(self) -> pa.Table:
        """A row for each outcome."""
        return table({"outcome": str, **RATE_COLUMNS}, [(each.outcome, *each.rate.row) for each in self.shares])

    def print(self, console: Console) -> None:
        """Prints how the continuations ended."""
        for line in (self._heading(), *self.notes):
            console.print(line, soft_wrap=True, markup=False)
        grid = Table("outcome", "of", "share (95% interval)", box=None, header_style="bold")
        for each in self.shares:
            grid.add_row(each.outcome, f"{each.rate.k} of {each.rate.n}", share_label(each.rate))
        console.print(grid)
        if self.difference:
            console.print(f"continued with its own draws it {self.difference}", soft_wrap=True, markup=False)

    def _heading(self) -> str:
        return f"{self.origin}; {self.n} continuations from step {self.step} with {DRAWS[self.redraw]}"

    def _in_words(self) -> str:
        shares = ", ".join(f"{each.outcome} {share_label(each.rate)}" for each in self.shares)
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
    """Continues a training from a step many times: P(outcome | its state there).

    Args:
        directory: The sweep.
        name: The training, as `find_training` accepts it.
        step: Where the continuations begin.
        redraw: `data`: other data after the step; `noise`: other dropout masks; `kick`: normal noise once, added to the
            parameters.
        n: How many.
        size: Of a kick, relative to the root mean square of each parameter tensor.
        say: Told what begins, and about how long it takes.

    Raises:
        UserError: If there is no such training or step, it failed, or nothing is drawn that could be drawn anew.
    """
    check_numbers(n, size)
    source = Source(directory, name, redraw, size)
    states = source.states([step])
    say(f"{n} continuations of {source.n_steps - step:,} steps: about {source.seconds(step, n):.1f} s ...")
    found = source.continued(states, step, range(n + 1))
    others = pc.field("replicate") > 0
    trainings, curves = found.rows.trainings.filter(others), found.rows.curves.filter(others)
    counts = Counter(trainings["outcome"].to_pylist())
    return Fork(
        origin=source.origin,
        step=step,
        redraw=redraw,
        size=size if redraw == "kick" else None,
        n=n,
        shares=tuple(Share(outcome, binomial_rate(k, n)) for outcome, k in counts.most_common()),
        difference=found.difference,
        notes=source.notes,
        trainings=trainings,
        curves=curves,
    )


def check_numbers(n: int, size: float) -> None:
    """Refuses no continuations, and a kick of no size.

    Raises:
        UserError: If there are none, or it has none.
    """
    if n < 1:
        raise UserError(
            "--n", given=n, expected="a number of continuations from 1 on", fix=f"write for example --n {DEFAULT_N}"
        )
    if not 0 < size < float("inf"):
        raise UserError(
            "--size", given=size, expected="a kick's size above 0", fix=f"write for example --size {DEFAULT_SIZE}"
        )
