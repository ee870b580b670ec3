"""Trains a recorded training again, alone in this process, on request with more measurements."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from attnsweep.orchestrator.analysis.answer import Record
from attnsweep.orchestrator.inspection.deviation import Deviation, Difference
from attnsweep.orchestrator.inspection.recorded import find_training
from attnsweep.orchestrator.inspection.retraining import retrain
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.output_file import make_folder, writing_file
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.messages import Rows
from attnsweep.workloads.engine.schedule import dense_probe_steps


@dataclass(frozen=True, kw_only=True)
class Replay(Record):
    """How far a training that was trained again, alone, differs from the ledger.

    Attributes:
        notes: Changes since the recording that may change last digits: the device, the version of PyTorch.
    """

    json_keys = (
        "sweep",
        "agrees=deviation.agrees",
        "disagrees_in=deviation.disagreements",
        "**deviation",
        "absolute=deviation.absolute",
        "relative=deviation.relative",
        "notes",
    )

    sweep: str
    deviation: Deviation
    notes: tuple[str, ...]

    def print(self, console: Console) -> None:
        deviation = self.deviation
        training = f"trial {deviation.trial}, replicate {deviation.replicate}"
        lines = [f"{deviation.training_id}: {training} of {self.sweep}", *self.notes]
        for line in lines:
            console.print(line, soft_wrap=True, markup=False)
        console.print(_table(deviation))
        for name, ending in (("recorded", deviation.recorded), ("replayed", deviation.replayed)):
            if ending.last_words:
                console.print(f"{name} error: {ending.last_words}", soft_wrap=True, markup=False)
        verdict = (
            f"agrees: same outcome and steps, losses within {deviation.tolerance:g}"
            if deviation.agrees
            else f"does not agree: {', '.join(deviation.disagreements)} (losses within {deviation.tolerance:g} would)"
        )
        console.print(verdict, soft_wrap=True, markup=False)


def replay(directory: SweepDirectory, name: str, trace: Path | None = None) -> Replay:
    """Trains one training of a sweep again, alone, and compares it with the ledger.

    Args:
        trace: A folder for `curves.parquet` and, if there are heads, `heads.parquet`: measurements at every step, or at
            about 2,000 steps of a longer training, with the columns of the ledger's tables. The additional measurements
            do not change how the training ends.

    Raises:
        UserError: If there is no such training, the workload is gone, or the folder cannot be written.
    """
    training_id = find_training(Ledger(directory.place), name)
    (again,) = retrain(directory, [training_id], None if trace is None else dense_probe_steps)
    if trace is not None:
        _write_trace(again.traced, trace)
    return Replay(sweep=directory.sweep, deviation=again.deviation, notes=again.notes)


def _write_trace(traced: Rows, folder: Path) -> None:
    make_folder(folder, "--trace")
    for name, rows in (("curves", traced.curves), ("heads", traced.heads)):
        if rows is not None:
            with writing_file(folder / f"{name}.parquet", "--trace") as path:
                pq.write_table(rows, path)


def _table(deviation: Deviation) -> Table:
    table = Table("", "recorded", "replayed", "deviation", "relative", "largest", box=None, header_style="bold")
    differences = {difference.name: difference for difference in deviation.differences}
    for name in ("outcome", "outcome_detail", "n_steps", "onset_step", "final_loss", "eval_loss", "grad_norm"):
        words = [_word(getattr(ending, name)) for ending in (deviation.recorded, deviation.replayed)]
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
