"""The result of a replay, on one screen and as JSON."""

import json
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from attnsweep.orchestrator.inspection.deviation import Deviation, Difference


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A training of a sweep, trained again alone.

    Attributes:
        sweep: The sweep.
        deviation: The recorded training, the replayed one, and how far they are apart.
        notes: Changes since the recording: of the device, of the version of PyTorch.
    """

    sweep: str
    deviation: Deviation
    notes: tuple[str, ...]

    def to_json(self) -> str:
        """One line of JSON, for scripts."""
        found = self.deviation
        content = {
            "sweep": self.sweep,
            "agrees": found.agrees,
            "disagrees_in": found.disagreements(),
            **asdict(found),
            "absolute": found.absolute,
            "relative": found.relative,
            "notes": self.notes,
        }
        return json.dumps(content, allow_nan=False)

    def print(self, console: Console) -> None:
        """Prints recorded beside replayed, the deviations, and the verdict."""
        found = self.deviation
        lines = [f"{found.training_id}: trial {found.trial}, replicate {found.replicate} of {self.sweep}", *self.notes]
        for line in lines:
            console.print(line, soft_wrap=True, markup=False)
        console.print(_table(found))
        for name, ending in (("recorded", found.recorded), ("replayed", found.replayed)):
            if ending.last_words:
                console.print(f"{name} error: {ending.last_words}", soft_wrap=True, markup=False)
        console.print(_verdict(found), soft_wrap=True, markup=False)


def _table(found: Deviation) -> Table:
    table = Table("", "recorded", "replayed", "deviation", "relative", "largest", box=None, header_style="bold")
    differences = {each.name: each for each in found.differences}
    for name in ("outcome", "outcome_detail", "n_steps", "onset_step", "final_loss", "eval_loss", "grad_norm"):
        words = [_word(getattr(ending, name)) for ending in (found.recorded, found.replayed)]
        table.add_row(name, *words, *(_numbers(differences[name])[:2] if name in differences else ()))
    for name in ("levels", "curves", "heads"):
        each = differences[name]
        once = f"{each.n_once} once" if each.n_once else ""
        if each.n or each.n_once:
            table.add_row(name, f"{each.n} numbers", once, *_numbers(each))
    return table


def _numbers(difference: Difference) -> tuple[str, str, str]:
    if not difference.n:
        return "", "", ""
    return f"{difference.absolute:.2g}", f"{difference.relative:.2g}", difference.where


def _word(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _verdict(found: Deviation) -> str:
    if found.agrees:
        return f"agrees: same outcome and steps, losses within {found.tolerance:g}"
    return f"does not agree: {', '.join(found.disagreements())} (losses within {found.tolerance:g} would)"
