"""Two sweeps on one cluster: the second says who has the cores, and one of higher priority gets them."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from attnsweep.orchestrator.training.messages import HandedBack, PackOrder, Progress, Reports, RunContext
from attnsweep.orchestrator.training.nodes import Wanted
from attnsweep.orchestrator.training.ray_pool import TrainerPool
from attnsweep.orchestrator.training.tasks import Task
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.testing import defaults
from tests.fault import sweeps
from tests.hosts.drivers import Driver, packs_under_way

SLOW = Path(__file__).parents[1] / "hosts" / "slow.py"
N_STEPS = "n_steps=100"


def _wait(pools: Sequence[TrainerPool], condition: Callable[[], bool]) -> Reports:
    """Lets all pools follow the cluster until a condition holds; returns what they reported by then."""
    heard: Reports = []
    for _ in range(200):
        if condition():
            return heard
        for pool in pools:
            heard += [each for each in pool.reports(0.2) if not isinstance(each[1], Progress)]
    pytest.fail(f"waited in vain: {[pool.waiting_for for pool in pools]}")


def _endless(pack: str) -> PackOrder:
    parameters = defaults(CategoryPairs(), n_steps=10**6, stop_when_solved=False)
    return PackOrder(pack, [Task(trial=0, replicate=0, training=Training(parameters, 1))])


@pytest.mark.scale
def test_the_second_says_who_has_the_cores_and_the_third_gets_one(local_ray: str) -> None:
    with ExitStack() as opened:

        def start(name: str, n_trainers: int, priority: int = 0) -> TrainerPool:
            wanted = Wanted(n_trainers, n_trainers)
            return opened.enter_context(
                closing(TrainerPool(CategoryPairs(), RunContext(name), wanted, priority=priority))
            )

        first = start("first", 2)
        _wait([first], lambda: first.n_placed == 2)
        orders = [_endless("one"), _endless("other")]
        for order in orders:
            first.train(order)
        second = start("second", 1)
        _wait([first, second], lambda: "first" in second.waiting_for)
        words = r"sweep first \(priority 0, process \d+ on .*\) has 2 trainers on 1 host, for \d+ s"
        assert re.fullmatch(f"cores: {words}", second.waiting_for)
        (notice,) = second.notices()
        assert re.fullmatch(f"waiting with 1 trainer for cores: {words}", notice)
        second.close()
        third = start("third", 1, priority=1)
        ((order, report),) = _wait([first, third], lambda: third.n_placed == 1)
        assert isinstance(report, HandedBack)
        assert first.running == [each for each in orders if each is not order]
        third.close()
        assert _wait([first], lambda: first.n_placed == 2) == []
        assert [re.sub(r"\(.*\)", "(...)", line) for line in first.notices()] == [
            "this sweep gives way to sweep third (...)",
            "sweep third (...) no longer wants its cores",
        ]


def _slow_file(folder: Path, nap: str) -> Path:
    """The file of the slow sweep; each step takes so many seconds more."""
    folder.mkdir()
    path = folder / "slow.py"
    text = SLOW.read_text().replace("/srv/slow.py", str(path))
    path.write_text(text.replace('os.environ.get("NAP", "0")', nap))
    return path


@pytest.fixture
def start(local_ray: str, mlflow_database: str, tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    """Starts `attnsweep run` of slow packs, into a directory; ends what has not ended."""
    slow = _slow_file(tmp_path / "napping", "0.05")
    started = []

    def start(directory: Path, *options: str) -> Driver:
        words: list[str | Path] = [
            "run",
            slow,
            "--address",
            local_ray,
            "--dir",
            directory,
            "--set",
            N_STEPS,
            "--pack-size",
            "4",
            "--no-report",
        ]
        command: list[str | Path] = [Path(sys.executable).with_name("attnsweep"), *words, *options]
        started.append(
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
        return Driver(started[-1])

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.scale
def test_a_sweep_of_higher_priority_gets_the_cores(start: Callable[..., Driver], tmp_path: Path) -> None:
    low = start(tmp_path / "low", "--trials", "6")
    packs_under_way(tmp_path / "low", 2)
    high = start(tmp_path / "high", "--trials", "2", "--priority", "1")
    low.hear(r"^this sweep gives way to sweep slow-\S+ \(priority 1, process \d+ on .*\)$")
    # On both cores: the other sweep has none of them by then.
    packs_under_way(tmp_path / "high", 2)
    low.hear(r"^waiting for cores: sweep slow-\S+ \(priority 1, ")
    assert high.wait() == 0, high.said
    low.hear(r"^sweep slow-\S+ \(priority 1, .*\) no longer wants its cores$")
    assert low.wait() == 0, low.said
    spec = load_sweep(str(_slow_file(tmp_path / "quick", "0"))).fix({"n_steps": 100})
    for path, n_trials in ((tmp_path / "low", 6), (tmp_path / "high", 2)):
        undisturbed = tmp_path / f"undisturbed_{n_trials}"
        sweeps.run(spec.but(trials=n_trials), undisturbed)
        assert sweeps.outcomes(path) == sweeps.outcomes(undisturbed)
        assert sweeps.curves(path) == sweeps.curves(undisturbed)
