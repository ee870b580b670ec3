"""The sweep behind a reproduction: run by the same machinery as any other, taken up where it stopped."""

from pathlib import Path

from rich.console import Console

from attnsweep.orchestrator.running.session import resume_sweep, run_sweep
from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE, SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.errors import UserError


def swept(name: str, directory: Path, console: Console) -> SweepDirectory:
    """The finished sweep of a shipped spec, in a directory of its own name inside the reproduction's.

    Args:
        name: Of the shipped sweep.
        directory: The reproduction's.
        console: For progress and summary.

    Raises:
        UserError: If the directory holds another sweep.
        SweepError: If the sweep cannot go on.
        KeyboardInterrupt: If a signal ended it early; it can be taken up again.
    """
    path, spec = directory / name, load_sweep(name)
    if (path / SWEEP_FILE).exists():
        if SweepDirectory.open(path).spec != spec:
            raise UserError(
                "--dir", given=str(path), expected=f"the sweep {name} as it is shipped now", fix="choose another --dir"
            )
        summary = resume_sweep(path, Resources(), console)
    else:
        summary = run_sweep(spec, path, Resources(), console)
    summary.print(console)
    if not summary.finished:
        raise KeyboardInterrupt
    return summary.directory
