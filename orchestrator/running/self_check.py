"""The end of a sweep: a random hundredth of its trainings once more, each alone, on the sweep's own trainers.

A training must not depend on the pack that it was trained in. Tests hold that for the shipped workloads; this holds it
for the sweep at hand, a user's own workload and this machine's kernels included.
"""

from collections.abc import Callable, Mapping

from pydantic import BaseModel, ConfigDict

from attnsweep.orchestrator.inspection.deviation import Deviation, deviation
from attnsweep.orchestrator.inspection.replay import recorded_rows, recorded_tasks, to_replay
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.location import as_argument, place_at
from attnsweep.orchestrator.storage.record_file import DamagedRecordError, read_record, record_text
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.messages import PackOrder, Raised, Rows, Trained
from attnsweep.orchestrator.training.pool import Pool
from attnsweep.workloads.registry import load_workload

REPLAYS_FILE = "replays.json"
_MOST_LOSSES_IN_A_ROW = 16
_WAIT_SECONDS = 0.5


class Replays(BaseModel):
    """What became of the trainings that were trained again alone.

    Attributes:
        deviations: Of the losses, as `deviation` has it, by training id; `None` where one of the two is no number.
        disagreeing: Those that ended otherwise, and in what.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    deviations: Mapping[str, float | None]
    disagreeing: Mapping[str, list[str]]

    @property
    def largest(self) -> float | None:
        """The largest deviation of a loss; `None` where one was not a number."""
        values = list(self.deviations.values())
        return None if None in values else max((value for value in values if value is not None), default=0.0)

    def as_json(self) -> dict[str, int | float | None]:
        """Plain values."""
        n = len(self.deviations)
        return {"trainings": n, "agreeing": n - len(self.disagreeing), "largest_deviation": self.largest}

    def __str__(self) -> str:
        """For people."""
        n = len(self.deviations)
        if self.disagreeing:
            first, columns = next(iter(self.disagreeing.items()))
            others = f"{len(self.disagreeing)} of {n} trainings alone, which end otherwise"
            return f"replayed {others}, such as {first} ({', '.join(columns)})"
        largest = "unknown" if self.largest is None else f"{self.largest:.2g}"
        return f"replayed {n} trainings alone: they end as fused, largest deviation of a loss {largest}"


def read_replays(directory: SweepDirectory) -> Replays | None:
    """What an earlier run has recorded; `None` where there is nothing.

    Raises:
        DamagedRecordError: If it is not what was written.
    """
    again = f"replay them again with: attnsweep resume {as_argument(directory.path)}"
    try:
        return read_record(place_at(directory.path), REPLAYS_FILE, Replays, again)
    except FileNotFoundError:
        return None


def earlier_replays(directory: SweepDirectory) -> Replays | None:
    """What an earlier run has recorded; `None` also for a damaged record, whose trainings are to be replayed again."""
    try:
        return read_replays(directory)
    except DamagedRecordError:
        return None


def replay_some(directory: SweepDirectory, pool: Pool, should_stop: Callable[[], bool]) -> Replays | None:
    """Replays a hundredth of a finished sweep's trainings, at least two, and records how they ended.

    Args:
        directory: The sweep.
        pool: Its trainers, idle by now.
        should_stop: Asked about twice a second; then nothing is recorded.

    Returns:
        What became of them; `None` if it was stopped or trainers kept being lost.
    """
    workload = load_workload(directory.spec.workload)
    ledger = Ledger(directory.path)
    trainings = ledger.trainings(columns=["training_id", "outcome"])
    waiting = []
    for training_id in to_replay(trainings, directory.spec.seed):
        tasks = recorded_tasks(workload, recorded_rows(ledger, training_id).trainings)
        waiting.append(PackOrder(training_id, tasks))
    found: dict[str, Deviation] = {}
    n_losses = 0
    while waiting or pool.running:
        if should_stop() or n_losses > _MOST_LOSSES_IN_A_ROW:
            return None
        while waiting and pool.has_idle:
            pool.train(waiting.pop(0))
        for order, report in pool.reports(_WAIT_SECONDS):
            match report:
                case Trained():
                    n_losses = 0
                    replayed = Rows(report.trainings, report.curves, report.heads)
                    found[order.pack] = deviation(recorded_rows(ledger, order.pack), replayed)
                case Raised():
                    # It did not raise in its pack.
                    return _record(directory, found, {order.pack: ["error"]})
                case _ if order not in pool.running:
                    n_losses += 1
                    waiting.append(order)
    return _record(directory, found, {})


def _record(directory: SweepDirectory, found: Mapping[str, Deviation], raised: Mapping[str, list[str]]) -> Replays:
    finite = {name: each.of_losses if each.of_losses < float("inf") else None for name, each in found.items()}
    disagreeing = {name: each.disagreements() for name, each in found.items() if not each.agrees}
    replays = Replays(deviations=finite | dict.fromkeys(raised), disagreeing=disagreeing | dict(raised))
    place_at(directory.path).put_text(REPLAYS_FILE, record_text(replays))
    return replays
