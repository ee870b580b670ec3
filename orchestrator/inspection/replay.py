"""Trains a recorded training again, alone in this process."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from attnsweep.orchestrator.analysis.tables import show, to_json
from attnsweep.orchestrator.inspection.deviation import last_line
from attnsweep.orchestrator.inspection.recorded import find_training
from attnsweep.orchestrator.inspection.retraining import Retrained, retrain
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

_ENDING = ("outcome", "outcome_detail", "n_steps", "onset_step", "final_loss", "eval_loss", "grad_norm")


def replay(directory: SweepDirectory, name: str) -> Retrained:
    """Raises UserError if there is no such training, or the workload is gone."""
    (again,) = retrain(directory, [find_training(Ledger(directory.place), name)])
    return again


def replay_json(again: Retrained) -> str:
    deviation = again.deviation

    def ending(row: Mapping[str, Any]) -> dict[str, Any]:
        return {name: row[name] for name in (*_ENDING, "device", "host", "error")}

    return to_json(
        {name: deviation.recorded[name] for name in ("sweep", "training_id", "trial", "replicate")}
        | {"agrees": deviation.agrees, "disagrees_in": deviation.disagreements, "notes": again.notes}
        | {"recorded": ending(deviation.recorded), "replayed": ending(deviation.replayed)}
        | {name: getattr(deviation, name) for name in ("differences", "tolerance", "absolute", "relative")}
    )


def print_replay(again: Retrained, console: Console) -> None:
    def say(line: str) -> None:
        console.print(line, soft_wrap=True, markup=False)

    deviation = again.deviation
    row = deviation.recorded
    say(f"{row['training_id']}: trial {row['trial']}, replicate {row['replicate']} of {row['sweep']}")
    for note in again.notes:
        say(note)
    both = {"recorded": row, "replayed": deviation.replayed}
    columns = {name: [_word(row[column]) for column in _ENDING] for name, row in both.items()}
    show(pa.table({"": _ENDING} | columns), console)
    show(deviation.differences.filter((pc.field("n") > 0) | (pc.field("n_once") > 0)), console)
    for name, each in both.items():
        if error := last_line(each["error"]):
            say(f"{name} error: {error}")
    if not deviation.agrees:
        say(f"does not agree: {', '.join(deviation.disagreements)} (losses agree within {deviation.tolerance:g})")
    elif deviation.absolute == 0:
        say("agrees: every number is equal to the last bit")
    else:
        say(f"agrees: same outcome and steps, losses within {deviation.tolerance:g}")


def _word(value: object) -> str:
    return f"{value:.10g}" if isinstance(value, float) else "-" if value is None else str(value)
