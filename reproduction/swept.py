"""The sweep behind a reproduction: it runs, and resumes, as any other sweep does."""

from pathlib import Path
from typing import Literal

from rich.console import Console

from attnsweep.orchestrator.running.session import resume_sweep, run_sweep
from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE, SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError


def swept(
    name: str,
    directory: Path,
    console: Console,
    engine: Literal["auto", "vmapped"] = "vmapped",
    *,
    seed: int | None = None,
    local: bool = False,
    changed: Sweep | None = None,
) -> SweepDirectory:
    """Runs or resumes a shipped sweep to its end. One that has ended is read as it is: a published one has no journal.

    Args:
        name: The name of the shipped sweep.
        directory: The directory of the reproduction; the sweep is in a folder `name` inside, which may hold it with
            another seed.
        console: Shows progress and summary.
        engine: The engine with which the documents' numbers were measured; the others differ in the last digits.
        seed: Of a new sweep; default that of the shipped one.
        local: Train in this process, without Ray.
        changed: What to run in place of the shipped sweep.

    Raises:
        UserError: If the folder holds another sweep.
        SweepError: If the sweep cannot continue.
        KeyboardInterrupt: If a signal stopped the sweep early; it can be resumed.
    """
    path, spec, resources = directory / name, changed or load_sweep(name), Resources(engine=engine, local=local)
    if (path / SWEEP_FILE).exists():
        found = SweepDirectory.open(path)
        if not is_same_but_for_seed(found.spec, spec):
            raise UserError(
                "--dir", given=str(path), expected=f"the sweep {name} as shipped now", fix="choose another --dir"
            )
        if found.finished:
            return found
        summary = resume_sweep(path, resources, console)
    else:
        spec = spec if seed is None else spec.but(seed=seed)
        summary = run_sweep(spec, path, resources, console)
    summary.print(console)
    if not summary.finished:
        raise KeyboardInterrupt
    return summary.directory


def is_same_but_for_seed(one: Sweep, other: Sweep) -> bool:
    """Whether two sweeps differ in nothing but the seed, as the documents' numbers and their second measurement do."""
    return one.but(seed=other.seed) == other
