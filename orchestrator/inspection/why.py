"""Why a training stands where it does: the words of its gradients at its end, on one screen and as JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow.compute as pc
import torch
from rich.console import Console
from rich.table import Table

from attnsweep.orchestrator.inspection.kept_weights import ended_states
from attnsweep.orchestrator.inspection.replay import find_training, recorded_tasks
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.location import as_argument
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.words.terms import Balance, GradientWords

_BLOCKS = "▁▂▃▄▅▆▇█"
_MOST_BLOCKS = 60
_LEAST_SPAN = 0.1
"""Of a logarithm of the loss, over the height of all blocks: a flat curve looks flat."""
_WITHOUT_END = ("failed", "diverged", "pruned")


@dataclass(frozen=True, kw_only=True)
class Why:
    """What the words of a training say.

    Attributes:
        sweep: The directory, as the user named it.
        row: The training's row of `trainings`.
        words: Of its gradients, where it ended.
        curve: Its `eval_loss` at its probes, as (step, value).
    """

    sweep: str
    row: Mapping[str, Any]
    words: GradientWords
    curve: Sequence[tuple[int, float]]

    @property
    def replay_command(self) -> str:
        """The command that trains it again."""
        return f"attnsweep replay {as_argument(self.sweep)} {self.row['trial']}/{self.row['replicate']}"

    def to_json(self) -> str:
        """One line of JSON, for scripts."""
        terms = [
            {
                "weight": term.weight,
                "part": term.part,
                "kind": "pull" if term.is_pull else "brake",
                "word": term.text,
                "norm": float(term.value.norm()),
            }
            for term in self.words.terms
        ]
        names = ("training_id", "trial", "replicate", "outcome", "outcome_detail", "certificate", "certified")
        content = {
            **{name: self.row[name] for name in names},
            "state": self.words.state(),
            "norms": {name: float(value.norm()) for name, value in self.words.weights.items()},
            "growth": self.words.growth(),
            "balances": [asdict(each) for each in self.words.balances()],
            "words": terms,
            "replay": self.replay_command,
        }
        return json.dumps(content, allow_nan=False)

    def print(self, console: Console) -> None:
        """Prints one page: outcome, words, what they mean, the loss curve, the command that replays."""
        for line in (self._headline(), f"{self.words.state()}: {_meaning(self.words)}", ""):
            console.print(line, soft_wrap=True, markup=False)
        console.print(_table(self.words))
        norms = ", ".join(f"|{name}| = {float(value.norm()):.2g}" for name, value in self.words.weights.items())
        for line in (
            f"sizes: of a word times its weight, over the part's zero level; left: |sum| over sum of norms; {norms}",
            self.words.legend,
            "",
            *_drawn(self.curve),
            f"replay {self.replay_command}",
        ):
            console.print(line, soft_wrap=True, markup=False)

    def _headline(self) -> str:
        row = self.row
        detail = f" ({row['outcome_detail']})" if row["outcome_detail"] else ""
        tested = {
            None: "",
            True: f", certified by {row['certificate']}",
            False: f", {row['certificate']} does not confirm",
        }
        loss = "" if row["eval_loss"] is None else f", loss {row['eval_loss']:.4g} after {row['n_steps']} steps"
        return f"{row['trial']}/{row['replicate']}  {row['outcome']}{detail}{loss}{tested[row['certified']]}"


def why(directory: SweepDirectory, name: str, shown: str) -> Why:
    """The words of a training where it ended. It is trained again, unless its weights were kept.

    Args:
        directory: The sweep.
        name: The training, as `find_training` accepts it.
        shown: The directory as the user named it.

    Raises:
        UserError: If there is no such training, it has no end to look at, or its workload knows no words for it.
    """
    ledger = Ledger(directory.place)
    mine = pc.field("training_id") == find_training(ledger, name)
    rows = ledger.trainings(filter=mine)
    (row,) = rows.to_pylist()
    if row["outcome"] in _WITHOUT_END:
        raise UserError(
            "TRAINING_ID",
            given=f"{name}, which ended as {row['outcome']}",
            expected="a training whose last weights are finite",
            fix='see: attnsweep query DIR "select trial, replicate from trainings where stuck"',
        )
    workload = load_workload_of(directory)
    (task,) = recorded_tasks(workload, rows)
    module = workload.build(task.training.parameters).double()
    if workload.words(task.training.parameters, module) is None:
        raise UserError(
            "TRAINING_ID",
            given=f"{name}, of {row['workload']} {row['variant'] or ''}".rstrip(),
            expected="a training whose workload knows the words of its gradients",
            fix="shipped: category_pairs with positions_only or categories_only and without softmax",
        )
    state = ended_states(directory, [row["training_id"]])
    module.load_state_dict({key: value[0].to(torch.float64) for key, value in state.items()})
    words = workload.words(task.training.parameters, module)
    assert words is not None
    losses = ledger.curves(filter=mine & (pc.field("metric") == "eval_loss") & (pc.field("trial") == row["trial"]))
    curve = list(zip(losses["step"].to_pylist(), losses["value"].to_pylist(), strict=True))
    return Why(sweep=shown, row=row, words=words, curve=curve)


def _meaning(words: GradientWords) -> str:
    """The state in a sentence."""
    starved = words.starved_parts()
    if len(starved) == len(words.zero_levels):
        return "all words are small, so the weights hardly move: a zero of the gradient, or close to one"
    if words.state() == "moving":
        worst = max((each for each in words.balances() if each.part not in starved), key=lambda each: each.left)
        return f"the words of {worst.weight} in {worst.part} do not cancel: {worst.left:.0%} is left"
    if starved:
        (part,) = starved
        least = min((each for each in words.balances() if each.part == part), key=lambda each: each.size)
        return (
            f"pull and brake cancel where the words are large; the way out is {part}, where the words of "
            f"{least.weight} have size {least.size:.1g} (4 or more at a solution)"
        )
    if words.state() == "balanced":
        return "pull and brake cancel in all parts, as at a solution"
    norms = "grow" if words.growth() > 0 else "shrink"
    return (
        f"large words cancel, the pulls of I - P and P oppose each other, and a step downhill makes the norms {norms}"
    )


def _table(words: GradientWords) -> Table:
    table = Table("by", "part", "pull", "size", "brake", "size", "left", box=None, header_style="bold")
    for each in words.balances():
        pull, brake = (_text(words, each, kind) for kind in (True, False))
        table.add_row(each.weight, each.part, pull, f"{each.pull:.1e}", brake, f"{each.brake:.1e}", f"{each.left:.1e}")
    return table


def _text(words: GradientWords, of: Balance, is_pull: bool) -> str:
    mine = (term for term in words.terms if (term.weight, term.part, term.is_pull) == (of.weight, of.part, is_pull))
    return " + ".join(term.text for term in mine)


def _drawn(curve: Sequence[tuple[int, float]]) -> list[str]:
    """The curve as a row of blocks, of the logarithm of the loss, one per probe or per several."""
    points = [(step, math.log(value)) for step, value in sorted(curve) if value > 0]
    if not points:
        return []
    chosen = points[:: math.ceil(len(points) / _MOST_BLOCKS)]
    heights = [height for _, height in chosen]
    low, span = min(heights), max(max(heights) - min(heights), _LEAST_SPAN)
    blocks = [_BLOCKS[int((len(_BLOCKS) - 1) * (each - low) / span)] for each in heights]
    first, last = points[0], points[-1]
    ends = f"{math.exp(first[1]):.3g} at step {first[0]} to {math.exp(last[1]):.3g} at {last[0]}"
    return [f"loss   {''.join(blocks)}  {ends}; logarithms of both"]
