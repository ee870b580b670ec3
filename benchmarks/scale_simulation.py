"""How a driver keeps up with more and more trainers: a simulation with the costs that benchmarks measure.

    python benchmarks/scale_simulation.py [--trainers 250 1000 4000 16000] [--drivers 1] [--pack-size 64]
        [--pack-seconds 30] [--driver-seconds 0.0002] [--commit-seconds 0.05] [--report-seconds 0.00022]
        [--trainings 10000000] [--replicates 1] [--training-bytes 2500] [--trial-bytes 700] [--out FILE.json]

Trainers take packs, report at intervals, and wait for the driver when they have none. The driver is one server: it
takes all reports that are there, commits the packs among them at once, then hands out new ones. The trainers are shared
out evenly among `--drivers`. Defaults are the costs of `driver_scale.py`: `--driver-seconds` for each training (to ask,
queue, commit and tell), `--commit-seconds` for each commit, `--report-seconds` for each report through Ray. Time is
simulated; the trainings are not run.

Then, for `--trainings` in all, what one driver writes in an object store: commits, and the journal of its trials
(`--trial-bytes` each); and what all of it costs: requests, and storage (`--training-bytes` for each training, by the
month). Requests and prices are those that `shards.py` counts and names.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness import main


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Trainers of one driver, and what each thing costs, in seconds.

    Attributes:
        n_trainers: Trainers, each with one pack at a time.
        pack_size: Trainings in a pack.
        pack_seconds: The mean time of a pack.
        driver_seconds: The driver's work for each training.
        commit_seconds: The driver's work for each commit, however many packs it holds.
        report_seconds: The driver's work for each report of a pack.
        slice_seconds: Between two reports of a pack.
    """

    n_trainers: int
    pack_size: int = 64
    pack_seconds: float = 30.0
    driver_seconds: float = 2e-4
    commit_seconds: float = 0.05
    report_seconds: float = 2.2e-4
    slice_seconds: float = 1.0

    @property
    def seconds_per_pack(self) -> float:
        """The driver's work for a pack, its commit left out: what bounds the packs per second."""
        n_slices = self.pack_seconds / self.slice_seconds
        return self.pack_size * self.driver_seconds + n_slices * self.report_seconds


def busy_share(cluster: Cluster, n_packs: int, draw: Callable[[], float] | None = None, seed: int = 0) -> float:
    """The share of their time that trainers train, once each has had its first pack.

    Args:
        cluster: What to simulate.
        n_packs: Packs to simulate.
        draw: The time of a pack; `None` draws it evenly within a tenth of the mean.
        seed: Of the default draws.
    """
    generator = random.Random(seed)
    mean = cluster.pack_seconds
    draw = draw or (lambda: mean * generator.uniform(0.9, 1.1))
    # When each running pack ends. At the start they are at any point of their course.
    ends = [mean * generator.random() for _ in range(cluster.n_trainers)]
    heapq.heapify(ends)
    now = trained = 0.0
    n_done = 0
    while n_done < n_packs:
        now = max(now, ends[0])
        ready = 0
        while ends and ends[0] <= now:
            heapq.heappop(ends)
            ready += 1
        now += cluster.commit_seconds
        for _ in range(ready):
            # Each pack is handed out as soon as its own trials are asked for.
            now += cluster.seconds_per_pack
            seconds = draw()
            trained += seconds
            heapq.heappush(ends, now + seconds)
        n_done += ready
    # Packs under way are counted whole above: at the end half of each is still to come, as at the start half was over.
    return min(trained / (cluster.n_trainers * now), 1.0)


def limit(cluster: Cluster) -> float:
    """The share by arithmetic, where commits cost nothing: the driver is free, or it is the bottleneck."""
    return min(1.0, cluster.pack_seconds / (cluster.n_trainers * cluster.seconds_per_pack))


DOLLARS_PER_COMMIT = 1.5e-5 + 0.4 * 3.3e-5
"""Three objects, and a merge of some four fragments after every second or third commit."""
DOLLARS_PER_SECOND = (1 / 15 + 1 / 30 + 1 / 5) * 5e-6
"""Of a driver: progress, lease, and the process for MLflow, which lists the ledger's files."""
DOLLARS_PER_GIGABYTE = 0.023
"""For a month. For larger amounts it is a little less."""


def bill(n_each: int, drivers: int, packs: float, seconds: float) -> dict[str, float]:
    """What the drivers ask of an object store: commits of one driver, and the price of all requests.

    Args:
        n_each: Trainers of a driver.
        drivers: Drivers.
        packs: Packs of a driver.
        seconds: What the sweep takes.
    """
    # Packs that end within a second share a commit, unless they are those of a quarter of the trainers.
    commits = packs if n_each <= 4 else min(packs, seconds)
    dollars = drivers * (commits * DOLLARS_PER_COMMIT + seconds * DOLLARS_PER_SECOND)
    return {"commits_of_a_driver": round(commits), "request_dollars": round(dollars)}


def measure(
    *,
    trainers: tuple[int, ...] = (250, 1000, 4000, 16000),
    drivers: int = 1,
    pack_size: int = 64,
    pack_seconds: float = 30.0,
    driver_seconds: float = 2e-4,
    commit_seconds: float = 0.05,
    report_seconds: float = 2.2e-4,
    trainings: int = 10_000_000,
    replicates: int = 1,
    training_bytes: int = 2500,
    trial_bytes: int = 700,
) -> dict[str, Any]:
    """Simulates each number of trainers."""
    rows = []
    gigabytes = trainings * training_bytes / 1e9
    for n_trainers in trainers:
        n_each = -(-n_trainers // drivers)
        cluster = Cluster(
            n_trainers=n_each,
            pack_size=pack_size,
            pack_seconds=pack_seconds,
            driver_seconds=driver_seconds,
            commit_seconds=commit_seconds,
            report_seconds=report_seconds,
            slice_seconds=max(1.0, n_each / 1000),
        )
        share = busy_share(cluster, 20 * n_each)
        rate = share * n_trainers * pack_size / pack_seconds
        rows.append(
            {
                "trainers": n_trainers,
                "drivers": drivers,
                "busy": round(share, 3),
                "trainings_per_second": round(rate),
                "hours": round(trainings / rate / 3600, 1),
                **bill(n_each, drivers, trainings / pack_size / drivers, trainings / rate),
                "journal_megabytes_of_a_driver": round(trainings / replicates / drivers * trial_bytes / 1e6),
            }
        )
    storage = {"ledger_gigabytes": round(gigabytes), "month_dollars": round(gigabytes * DOLLARS_PER_GIGABYTE, 1)}
    return {"pack_seconds": pack_seconds, "trainings": trainings, **storage, "rows": rows}


if __name__ == "__main__":
    main(measure)
