"""The simulation behind docs/scale.md: it gives what arithmetic gives where arithmetic is enough."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from scale_simulation import Cluster, bill, busy_share, limit

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "scale_simulation.py"


def test_one_trainer_waits_for_its_own_commit_and_hand_out() -> None:
    cluster = Cluster(n_trainers=1, pack_seconds=2.0, pack_size=100, driver_seconds=0.01, commit_seconds=0.5)
    cycle = 2.0 + 0.5 + cluster.seconds_per_pack
    assert busy_share(cluster, 2000, draw=lambda: 2.0) == pytest.approx(2.0 / cycle, rel=1e-3)


@pytest.mark.parametrize("n_trainers", [2000, 8000])
def test_too_many_trainers_share_what_the_driver_can_do(n_trainers: int) -> None:
    cluster = Cluster(n_trainers=n_trainers, commit_seconds=0.0)
    assert limit(cluster) < 1
    assert busy_share(cluster, 20 * n_trainers) == pytest.approx(limit(cluster), rel=0.05)


def test_few_trainers_hardly_wait() -> None:
    cluster = Cluster(n_trainers=100)
    assert limit(cluster) == 1
    assert busy_share(cluster, 4000) > 0.98


def test_the_command_prints_a_row_for_each_number_of_trainers() -> None:
    command = [sys.executable, str(BENCHMARK), "--trainers", "100", "1000", "--drivers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout)["rows"]
    assert [(row["trainers"], row["drivers"]) for row in rows] == [(100, 2), (1000, 2)]


def test_more_drivers_of_few_trainers_each_commit_more_often() -> None:
    found = [bill(4000 // drivers, drivers, 1.6e7 / drivers, 120_000) for drivers in (1, 1000)]
    assert found[0]["commits_of_a_driver"] == 120_000
    assert found[1]["commits_of_a_driver"] == 16_000
    assert found[1]["request_dollars"] > 20 * found[0]["request_dollars"]
