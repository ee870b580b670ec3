"""Replays a training of a sweep: trains it again, alone in this process, also with more measurements than recorded."""

from pathlib import Path

import pyarrow.parquet as pq

from attnsweep.orchestrator.inspection.recorded import find_training
from attnsweep.orchestrator.inspection.replay_summary import Replay
from attnsweep.orchestrator.inspection.retraining import no_further, retrain
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.output_file import make_folder, writing_file
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.messages import Rows
from attnsweep.workloads.engine.schedule import dense_probe_steps


def replay(directory: SweepDirectory, name: str, trace: Path | None = None) -> Replay:
    """Trains one training of a sweep again, alone, and compares it with the ledger.

    Args:
        directory: The sweep.
        name: The training, as `find_training` accepts it.
        trace: A folder for `curves.parquet` and, if there are heads, `heads.parquet`: measurements at every step, or at
            about 2,000 steps of a longer training, with the columns of the ledger's tables. The additional measurements
            do not change how the training ends.

    Raises:
        UserError: If there is no such training, the workload is gone, or the folder cannot be written.
    """
    training_id = find_training(Ledger(directory.place), name)
    (found,) = retrain(directory, [training_id], no_further if trace is None else dense_probe_steps)
    if trace is not None:
        _write_trace(found.traced, trace)
    return Replay(sweep=directory.sweep, deviation=found.deviation, notes=found.notes)


def _write_trace(traced: Rows, folder: Path) -> None:
    make_folder(folder, "--trace")
    for name, rows in (("curves", traced.curves), ("heads", traced.heads)):
        if rows is not None:
            with writing_file(folder / f"{name}.parquet", "--trace") as path:
                pq.write_table(rows, path)
