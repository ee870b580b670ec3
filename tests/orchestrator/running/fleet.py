"""Several trainers in this process, on machines of one or several types, for tests of the sweep loop."""

from collections.abc import Callable, Sequence

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.local_pool import LocalPool
from attnsweep.orchestrator.training.messages import PackOrder, Reports, RunContext
from attnsweep.workloads.category_pairs import CategoryPairs


class Fleet:
    """A pool of local trainers, one for each machine. A look at them lets each train for a slice.

    Attributes:
        trained: The packs, with the machine that each was given to.
    """

    waiting_for = ""

    def __init__(self, directory: SweepDirectory, *machines: str, look: Callable[[], None] = lambda: None) -> None:
        run = RunContext(directory.sweep, directory.environment)
        self._pools = [LocalPool(CategoryPairs(), run) for _ in machines]
        for pool, machine in zip(self._pools, machines, strict=True):
            pool.machine = machine
        self.n_trainers = len(machines)
        self.trained: list[tuple[str, PackOrder]] = []
        self._look = look

    @property
    def idle(self) -> list[str]:
        return [machine for pool in self._pools for machine in pool.idle]

    @property
    def machines(self) -> frozenset[str]:
        return frozenset(pool.machine for pool in self._pools)

    @property
    def running(self) -> list[PackOrder]:
        return [order for pool in self._pools for order in pool.running]

    def notices(self) -> list[str]:
        return []

    def train(self, order: PackOrder) -> None:
        idle = [pool for pool in self._pools if pool.idle]
        pool = next((each for each in idle if order.machine in (None, each.machine)), idle[0])
        self.trained.append((pool.machine, order))
        pool.train(order)

    def answer(self, order: PackOrder, pruned: Sequence[int]) -> None:
        next(pool for pool in self._pools if order in pool.running).answer(order, pruned)

    def reports(self, timeout: float) -> Reports:
        self._look()
        return [report for pool in self._pools for report in pool.reports(timeout)]

    def hand_back(self, seconds: float) -> Reports:
        return [report for pool in self._pools for report in pool.hand_back(seconds)]

    def close(self) -> None:
        for pool in self._pools:
            pool.close()
