"""Trains a recorded training again, alone in this process."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from attnsweep.orchestrator.analysis.tables import to_json
from attnsweep.orchestrator.inspection.deviation import Deviation, Difference, last_line
from attnsweep.orchestrator.inspection.recorded import find_training
from attnsweep.orchestrator.inspection.retraining import Retrained, retrain
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

_SHOWN = ("outcome", "outcome_detail", "n_steps", "onset_step", "final_loss", "eval_loss", "grad_norm")


def replay(directory: SweepDirectory, name: str) -> Retrained:
    """Raises UserError if there is no such training, or the workload is gone."""
    (again,) = retrain(directory, [find_training(Ledger(directory.place), name)])
    return again


def replay_json(again: Retrained) -> str:
    deviation = again.deviation

    def ending(row: Mapping[str, Any]) -> dict[str, Any]:
        return {name: row[name] for name in (*_SHOWN, "device", "host", "error")}

    return to_json(
        {name: deviation.recorded[name] for name in ("sweep", "training_id", "trial", "replicate")}
        | {
            "agrees": deviation.agrees,
            "disagrees_in": deviation.disagreements,
            "recorded": ending(deviation.recorded),
            "replayed": ending(deviation.replayed),
            "differences": deviation.differences,
            "tolerance": deviation.tolerance,
            "absolute": deviation.absolute,
            "relative": deviation.relative,
            "notes": again.notes,
        }
    )


def print_replay(again: Retrained, console: Console) -> None:
    for line in _lines_before(again):
        console.print(line, soft_wrap=True, markup=False)
    console.print(_table(again.deviation))
    for line in _lines_after(again.deviation):
        console.print(line, soft_wrap=True, markup=False)


def _lines_before(again: Retrained) -> Iterator[str]:
    row = again.deviation.recorded
    yield f"{row['training_id']}: trial {row['trial']}, replicate {row['replicate']} of {row['sweep']}"
    yield from again.notes


def _lines_after(deviation: Deviation) -> Iterator[str]:
    for name, row in (("recorded", deviation.recorded), ("replayed", deviation.replayed)):
        if error := last_line(row["error"]):
            yield f"{name} error: {error}"
    if not deviation.agrees:
        yield f"does not agree: {', '.join(deviation.disagreements)} (losses within {deviation.tolerance:g} would)"
    elif deviation.absolute == 0:
        yield "agrees: every number is equal to the last bit"
    else:
        yield f"agrees: same outcome and steps, losses within {deviation.tolerance:g}"


def _table(deviation: Deviation) -> Table:
    table = Table("", "recorded", "replayed", "deviation", "relative", "largest", box=None, header_style="bold")
    differences = {difference.name: difference for difference in deviation.differences}
    for name in _SHOWN:
        words = [_word(row[name]) for row in (deviation.recorded, deviation.replayed)]
        table.add_row(name, *words, *(_numbers(differences[name])[:2] if name in differences else ()))
    for name in ("levels", "curves", "heads"):
        difference = differences[name]
        once = f"{difference.n_once} once" if difference.n_once else ""
        if difference.n or difference.n_once:
            table.add_row(name, f"{difference.n} numbers", once, *_numbers(difference))
    return table


def _numbers(difference: Difference) -> tuple[str, str, str]:
    if not difference.n:
        return "", "", ""
    return f"{difference.absolute:.2g}", f"{difference.relative:.2g}", difference.where


def _word(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.10g}" if isinstance(value, float) else str(value)
