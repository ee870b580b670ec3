"""A driver that is killed while its trainers train on Ray; what each write leaves: test_killed_between_writes.py."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.fault import sweeps

ROOT = Path(__file__).parents[2]
PROGRAM = """
import signal, sys
from attnsweep.orchestrator import cli
from tests.fault.killed_driver import plant
plant("attnsweep.orchestrator.running.trials:OpenTrials.count", signal.SIGKILL)
cli.main()
"""


def test_its_trainers_leave_their_cores_to_the_next(local_ray: str, no_mlflow: None, tmp_path: Path) -> None:
    """Killed between its first commit and what it then tells. Trainers on both cores."""
    del no_mlflow
    spec, path = tmp_path / "spec.json", tmp_path / "s"
    spec.write_text(sweeps.small_sweep(sampler="tpe").to_json())
    words: list[str | Path] = [
        "run",
        spec,
        "--dir",
        path,
        "--address",
        local_ray,
        "--trainers",
        "2",
        "--pack-size",
        "4",
    ]
    killed = subprocess.run([sys.executable, "-c", PROGRAM, *words], cwd=ROOT, env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert 0 < len(sweeps.outcomes(path)) < 32
    assert sweeps.resume(path, local=False, address=local_ray, n_trainers=2).finished
    sweeps.run(sweeps.small_sweep(sampler="tpe"), tmp_path / "undisturbed")
    assert sweeps.outcomes(path) == sweeps.outcomes(tmp_path / "undisturbed")
