"""The CPU time of a command with all that it starts, whoever their parents are: Linux counts it by control group."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def run_accounted(command: Sequence[str | Path], folder: str) -> float | None:
    """Runs a command to its end; returns its CPU seconds, `None` where control groups cannot be made.

    Wall time depends on what else a machine does, CPU time hardly does.

    Args:
        command: The program and its arguments.
        folder: Where it runs.

    Raises:
        CalledProcessError: If it fails.
    """
    group = _new_group()
    if group is None:
        subprocess.run(command, check=True, cwd=folder)
        return None
    joining = f'echo $$ > {group / "cgroup.procs"} && exec "$@"'
    try:
        subprocess.run(["sh", "-c", joining, "sh", *command], check=True, cwd=folder)
        return _seconds(group)
    finally:
        _leave(group)


def _new_group() -> Path | None:
    """A group of our own: of version 1, where CPU time has a hierarchy of its own, or of version 2."""
    versions = [root for root in (_ROOT / "cpuacct", _ROOT) if (root / "cgroup.procs").exists()]
    group = versions[0] / f"attnsweep-{os.getpid()}" if versions else None
    try:
        if group is not None:
            group.mkdir(exist_ok=True)
    except OSError:
        return None
    return group


def _seconds(group: Path) -> float:
    nanoseconds = group / "cpuacct.usage"
    if nanoseconds.exists():
        return int(nanoseconds.read_text()) / 1e9
    numbers = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return int(numbers["usage_usec"]) / 1e6


def _leave(group: Path) -> None:
    """Moves what still runs to the group above, and removes the group."""
    for process in (group / "cgroup.procs").read_text().split():
        (group.parent / "cgroup.procs").write_text(process)
    group.rmdir()
