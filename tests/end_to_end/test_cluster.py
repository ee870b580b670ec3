"""The recipe of docs/clusters.md, followed to the letter on a real Ray head; and the doctor there."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyarrow.dataset as ds
import pytest

BIN = Path(sys.executable).parent
SECONDS_FOR_A_JOB = 200
DOCTOR = (BIN / "attnsweep", "doctor", "--address")


def submit(environment: Mapping[str, str], *command: str | Path) -> subprocess.CompletedProcess[str]:
    """`ray job submit`, which follows the job to its end and exits with 1 if it failed."""
    return subprocess.run(
        [BIN / "ray", "job", "submit", "--log-color", "false", "--", *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_FOR_A_JOB,
    )


@pytest.fixture(scope="module")
def submitted(ray_head: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that was submitted as a job."""
    directory = tmp_path_factory.mktemp("submitted") / "sweep"
    job = submit(
        ray_head,
        *(BIN / "attnsweep", "run", "quickstart", "--trials", "4", "--replicates", "4", "--set", "n_steps=50"),
        "--no-report",
        *("--trainers", "1", "--dir", directory, "--json"),
    )
    assert job.returncode == 0, job.stdout
    return directory


def test_a_sweep_submitted_as_a_job_leaves_its_ledger(submitted: Path) -> None:
    rows = ds.dataset(submitted / "trainings", format="parquet").to_table(columns=["trial", "replicate", "outcome"])
    keys = sorted(zip(rows["trial"].to_pylist(), rows["replicate"].to_pylist(), strict=True))
    assert keys == [(trial, replicate) for trial in range(4) for replicate in range(4)]
    assert None not in rows["outcome"].to_pylist()


@pytest.mark.scale
def test_a_stranger_is_refused(ray_head: Mapping[str, str]) -> None:
    job = submit({**ray_head, "RAY_AUTH_TOKEN": "a stranger's"}, sys.executable, "-c", "")
    assert job.returncode == 1
    assert "Invalid authentication token" in job.stdout


@pytest.mark.scale
def test_a_cluster_that_is_set_up_passes(ray_head: Mapping[str, str], mlflow_uri: str, tmp_path: Path) -> None:
    found = submit({**ray_head, "MLFLOW_TRACKING_URI": mlflow_uri}, *DOCTOR, "auto", "--dir", tmp_path)
    lines = [line for line in found.stdout.splitlines() if line.startswith(("ok ", "FAIL "))]
    assert found.returncode == 0, found.stdout
    assert [line[6:15].strip() for line in lines] == [
        *("versions", "token", "nodes", "libraries", "GPUs", "/dev/shm", "a pack", "MLflow", "directory")
    ]
    assert "ok    token      the cluster asks for it" in lines
    assert any(line.startswith("ok    nodes      1: ") for line in lines)
