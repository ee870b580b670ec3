"""The batch script for Slurm: what it asks for, the command that it runs, and a job that is requeued in mid-sweep."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray.util import get_node_ip_address

from attnsweep.search_spaces.loading import load_sweep
from tests.fault import sweeps
from tests.infra.commands import ROOT, parsed
from tests.infra.slurm_cluster import ENVIRONMENT, SlurmCluster, missing_programs, slurm_cluster, wait_until

SCRIPT = ROOT / "infra" / "slurm" / "attnsweep.sbatch"
TEXT = SCRIPT.read_text()
SECONDS_TO_TRAIN = 800


def test_it_is_a_script() -> None:
    subprocess.run(["bash", "-n", SCRIPT], check=True)


def test_it_asks_for_notice_and_for_another_turn() -> None:
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", TEXT, re.MULTILINE))
    assert asked["signal"] == "B:TERM@120"
    assert asked.keys() >= {"requeue", "nodes", "time"}
    assert asked["ntasks-per-node"] == "1"


def test_its_command_is_one_that_the_command_line_knows() -> None:
    [line] = re.findall(r'^"\$bin/attnsweep" (.*) &$', TEXT, re.MULTILINE)
    usages = re.findall(r"^#   sbatch .*attnsweep\.sbatch (.*)$", TEXT, re.MULTILINE)
    found = [parsed("attnsweep " + line.replace('"$@"', usage)) for usage in usages]
    assert [each["of_shard"] for each in found] == [None, "auto"]
    assert all(each["or_resume"] for each in found)
    assert {(each["spec"], each["directory"]) for each in found} == {("quickstart", "/shared/sweeps/first")}


def test_a_notice_after_the_driver_has_ended_is_no_failure() -> None:
    [trap] = re.findall(r"^trap .* TERM$", TEXT, re.MULTILINE)
    script = f"set -euo pipefail; true & driver=$!; wait $driver; {trap}; kill -TERM $$; echo notice=$notice"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("notice=1\n", "")


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    if missing := missing_programs():
        pytest.skip(f"no {', '.join(missing)}: apt-get install slurmctld slurmd slurm-client")
    if os.getuid() != 0:
        pytest.skip("slurmd runs jobs as root alone")
    with slurm_cluster() as cluster:
        yield cluster


def _has_ended(slurm: SlurmCluster, job: str, log: Path) -> bool:
    state = slurm.field(job, "JobState")
    assert state in ("PENDING", "RUNNING", "COMPLETING", "COMPLETED"), log.read_text()
    return state == "COMPLETED"


def _await_rows(slurm: SlurmCluster, job: str, log: Path, path: Path, beyond: int) -> int:
    """Waits until the sweep has more rows than that; returns their number."""

    def n_rows() -> int:
        return len(sweeps.outcomes(path)) if any(path.glob("trainings/*.parquet")) else 0

    wait_until(lambda: _has_ended(slurm, job, log) or n_rows() > beyond, "rows", SECONDS_TO_TRAIN)
    return n_rows()


@pytest.mark.scale
@pytest.mark.ray
@pytest.mark.timeout(2700)
def test_a_job_that_is_stopped_and_requeued_in_mid_sweep_ends_as_if_undisturbed(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    spec = tmp_path / "long.json"
    small = sweeps.small_sweep(trials=14)
    spec.write_text(small.but(space=dict(small.space) | {"n_steps": 1500, "stop_when_solved": False}).to_json())
    undisturbed, path = tmp_path / "undisturbed", tmp_path / "s"
    job = slurm.run(
        *("sbatch", "--parsable", "--nodes=3", f"--output={tmp_path}/job.log", SCRIPT),
        *(spec, "--dir", path, "--pack-size", "4"),
        ATTNSWEEP_BIN=str(ENVIRONMENT),
        ATTNSWEEP_TOKENS=str(tmp_path),
        ATTNSWEEP_HEAD=get_node_ip_address(),
        MLFLOW_TRACKING_URI=f"sqlite:///{tmp_path}/mlflow.db",
    ).strip()
    log = tmp_path / "job.log"
    n_rows = _await_rows(slurm, job, log, path, beyond=0)
    # As Slurm does two minutes before the time is up: a signal to the script alone, which asks for its next turn.
    slurm.run("scancel", "--batch", "--signal=TERM", job)
    wait_until(lambda: slurm.field(job, "Restarts") == "1", "the job's own requeue", SECONDS_TO_TRAIN)
    assert "interrupted; continue with: attnsweep resume" in log.read_text()
    n_rows = _await_rows(slurm, job, log, path, beyond=n_rows)
    slurm.run("scontrol", "requeue", job)
    wait_until(lambda: _has_ended(slurm, job, log), "the end of the job", SECONDS_TO_TRAIN)
    assert slurm.field(job, "Restarts") == "2"
    assert n_rows < len(sweeps.outcomes(path))
    sweeps.run(load_sweep(str(spec)), undisturbed)
    assert sweeps.outcomes(path) == sweeps.outcomes(undisturbed)
    assert list(tmp_path.glob(".attnsweep-token-*")) == []
    assert list(Path("/tmp").glob(f"ray-{job}-*")) == []
