"""The sweep behind a reproduction: it runs, and resumes, as any other sweep does."""

from pathlib import Path

from rich.console import Console

from attnsweep.orchestrator.running.session import resume_sweep, run_sweep
from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE, SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.errors import UserError

RESOURCES = Resources(engine="vmapped")
"""The documents' numbers were measured with this engine; the other one differs in the last digits."""


def swept(
    name: str, directory: Path, console: Console, *, seed: int | None = None, resources: Resources = RESOURCES
) -> SweepDirectory:
    """Runs or resumes a shipped sweep to its end.

    Args:
        name: The name of the shipped sweep.
        directory: The directory of the reproduction; the sweep is in a folder `name` inside, which may hold it with
            another seed.
        console: Shows progress and summary.
        seed: Of a new sweep; default that of the shipped one.
        resources: What to run on.

    Raises:
        UserError: If the folder holds another sweep.
        SweepError: If the sweep cannot continue.
        KeyboardInterrupt: If a signal stopped the sweep early; it can be resumed.
    """
    path, spec = directory / name, load_sweep(name)
    if (path / SWEEP_FILE).exists():
        if SweepDirectory.open(path).spec.but(seed=spec.seed) != spec:
            raise UserError(
                "--dir", given=str(path), expected=f"the sweep {name} as shipped now", fix="choose another --dir"
            )
        summary = resume_sweep(path, resources, console)
    else:
        spec = spec if seed is None else spec.but(seed=seed)
        summary = run_sweep(spec, path, resources, console)
    summary.print(console)
    if not summary.finished:
        raise KeyboardInterrupt
    return summary.directory
