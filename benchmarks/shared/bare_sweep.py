"""A sweep where torch, numpy and pyarrow alone are installed, as `attnsweep run --local` trains it.

Packs are made by the plan and the sizer of every sweep, trained by the trainer of every sweep, and their rows written
to Parquet with the ledger's schema. What needs other libraries is left out: the study, the lock, merges of files,
MLflow. Some trainings are trained again alone at the recorded width, as the self-check does.

The trainings are those that the sweeps' samplers draw: a machine without Optuna reads them in `gpu_day_points.json`.

    PYTHONPATH=benchmarks python -m shared.bare_sweep

writes that file anew. No shipped sweep that is named here learns from results, so its trials are functions of its seed
and their number: a longer sweep begins with those of a shorter one.
"""

import json
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from attnsweep.orchestrator.running.plan import Backlog, Fail, PackSizer, Shrink, SweepPlan
from attnsweep.orchestrator.training.local_pool import LocalPool
from attnsweep.orchestrator.training.messages import PackOrder, Raised, Report, Rows, RunContext, Trained, TrainerLost
from attnsweep.orchestrator.training.tasks import Shape, Task, training_seed
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.translation import Translation

_OF_ITS_PACK = ["pack", "lane", "pack_size", "train_seconds", "finished_at", "host"]
"""Columns in which a training that is trained again differs."""
_MOST_KEPT = 4


@dataclass
class _Kept:
    """A training whose rows are kept, to be compared with those of another time."""

    task: Task
    pack_size: int
    rows: Rows


@dataclass
class BareSweep:
    """One sweep, as far as it has come.

    Attributes:
        workload: Its problem.
        tasks: Its trainings.
        device, engine: As a trainer takes them.
        folder: Where its rows are written.
        pack_size: Of all packs; `None` finds the fastest one.
    """

    workload: Workload[Any]
    tasks: list[Task]
    device: str
    engine: str
    folder: Path
    pack_size: int | None = None
    n_trained: int = 0
    seconds: float = 0.0
    _lane_steps: int = 0
    _trainer_seconds: float = 0.0
    _writing_seconds: float = 0.0
    _outcomes: Counter[str] = field(default_factory=Counter)
    _n_stuck: int = 0
    _packs: list[int] = field(default_factory=list)
    _errors: list[str] = field(default_factory=list)
    _kept: list[_Kept] = field(default_factory=list)

    def __post_init__(self) -> None:
        run = RunContext("gpu_day", engine=self.engine)  # type: ignore[arg-type]
        self._pool = LocalPool(self.workload, run, self.device)
        self._sizers: defaultdict[Shape, PackSizer] = defaultdict(lambda: PackSizer(self.pack_size))
        self._plan = SweepPlan(Backlog())

    def train(self, until: float) -> None:
        """Trains what ends before this time of the monotonic clock; the pack that is under way by then is dropped."""
        began = time.monotonic()
        self._plan.backlog.add(self.tasks)
        while (self._plan.has_work or self._pool.running) and time.monotonic() < until:
            if self._pool.has_idle:
                self._hand_out()
            for order, report in self._pool.reports(0.0):
                self._receive(order, report)
        self._pool.close()
        self.seconds = time.monotonic() - began

    def _hand_out(self) -> None:
        plan = self._plan
        order = plan.pack_to_continue() or plan.new_pack(self._sizers.__getitem__, plan.fair_share(0, 1))
        assert order is not None
        self._pool.train(order)

    def _receive(self, order: PackOrder, report: Report | TrainerLost) -> None:
        match report:
            case Trained():
                self._plan.trained(order)
                speed = report.lane_steps / report.seconds
                self._sizers[order.shape].measured(len(order.tasks), speed, report.memory)
                self._take(order, report)
            case Raised():
                for action in self._plan.raised(order, report):
                    match action:
                        case Shrink():
                            self._sizers[order.shape].out_of_memory(len(order.tasks))
                        case Fail(error=error):
                            self._errors.append(error.strip().splitlines()[-1])

    def _take(self, order: PackOrder, report: Trained) -> None:
        rows, began = report.rows, time.monotonic()
        for table, of_table in (("trainings", rows.trainings), ("curves", rows.curves), ("heads", rows.heads)):
            if of_table is not None:
                pq.write_table(of_table, self.folder / f"{table}-{len(self._packs):06d}.parquet", compression="zstd")
        self._writing_seconds += time.monotonic() - began
        self.n_trained += len(order.tasks)
        self._lane_steps += report.lane_steps
        self._trainer_seconds += report.seconds
        self._packs.append(len(order.tasks))
        self._outcomes.update(rows.trainings["outcome"].to_pylist())
        self._n_stuck += pc.sum(rows.trainings["stuck"]).as_py()
        if len(self._kept) < _MOST_KEPT and len(order.tasks) > 1:
            # Lanes of all places.
            lane = len(order.tasks) * len(self._kept) // _MOST_KEPT
            self._kept.append(_Kept(order.tasks[lane], len(order.tasks), _of_lane(rows, lane)))

    def figures(self) -> dict[str, Any]:
        """What it took."""
        rows = sum(each.stat().st_size for each in self.folder.glob("*.parquet"))
        return {
            "trainings": self.n_trained,
            "of": len(self.tasks),
            "seconds": round(self.seconds, 2),
            "trainer_seconds": round(self._trainer_seconds, 2),
            "writing_seconds": round(self._writing_seconds, 2),
            "trainings_per_second": round(self.n_trained / self.seconds, 1),
            "lane_steps": self._lane_steps,
            "mebibytes_of_rows": round(rows / 2**20, 1),
            "packs": " ".join(map(str, self._packs[:8])) + (f" ... {len(self._packs)}" if len(self._packs) > 8 else ""),
            "stuck": round(self._n_stuck / max(self.n_trained, 1), 3),
            "outcomes": dict(self._outcomes.most_common()),
            "failed": len(self._errors),
            **({"error": self._errors[-1]} if self._errors else {}),
        }

    def replayed(self, until: float) -> dict[str, int]:
        """How many trainings, alone at the recorded width, have the same rows to the last bit."""
        n_replayed = n_equal = 0
        for kept in self._kept:
            if time.monotonic() > until:
                break
            self._pool.train(PackOrder("again", [kept.task], as_in=kept.pack_size))
            while self._pool.running:
                for _, report in self._pool.reports(0.0):
                    if isinstance(report, Trained):
                        n_equal += _are_equal(report.rows, kept.rows)
            n_replayed += 1
        return {"replayed": n_replayed, "equal_to_the_bit": n_equal}


def _of_lane(rows: Rows, lane: int) -> Rows:
    training = rows.trainings.slice(lane, 1)
    [name] = training["training_id"].to_pylist()

    def of_it(table: pa.Table) -> pa.Table:
        return table.filter(pc.equal(table["training_id"].cast(pa.string()), name)).combine_chunks()

    return Rows(training, of_it(rows.curves), None if rows.heads is None else of_it(rows.heads))


def _are_equal(one: Rows, other: Rows) -> bool:
    def plain(rows: Rows) -> Iterable[Any]:
        tables = rows.trainings.drop_columns(_OF_ITS_PACK), rows.curves, rows.heads
        return [None if each is None else each.to_pydict() for each in tables]

    return plain(one) == plain(other)


FILE = Path(__file__).parents[1] / "gpu_day_points.json"
TRIALS = {"quickstart": 1024, "chiang_fig4": 8, "stuck_full": 512, "mission_pairs": 256, "head_roles": 128}
"""How many of each sweep are in the file."""
_WORKLOADS: dict[str, Workload[Any]] = {each.name: each for each in (CategoryPairs(), FormalLanguages(), Translation())}


@dataclass(frozen=True)
class Points:
    """The trials of a sweep.

    Attributes:
        workload: The name of its workload.
        seed: Of the sweep.
        certified_share: As the sweep has it.
        fixed: Parameters that all trials share.
        drawn: By parameter, the value of each trial.
    """

    workload: str
    seed: int
    certified_share: float
    fixed: Mapping[str, Any]
    drawn: Mapping[str, Sequence[Any]]

    @classmethod
    def of(cls, sweep: str) -> Self:
        """Those in the file."""
        return cls(**json.loads(FILE.read_text())[sweep])

    @property
    def problem(self) -> Workload[Any]:
        """The workload."""
        return _WORKLOADS[self.workload]

    def tasks(self, trials: int, replicates: int, **changed: Any) -> Iterator[Task]:
        """The trainings of the first trials, as `attnsweep run --trials --replicates --set` makes them."""
        declared = self.problem.parameters.declared()
        for trial in range(trials):
            values = {name: column[trial] for name, column in self.drawn.items()}
            defaults = {name: each.default for name, each in declared.items()}
            parameters = self.problem.parameters.resolve({**defaults, **self.fixed, **values, **changed})
            for replicate in range(replicates):
                training = Training(parameters, training_seed(self.seed, trial, replicate))
                yield Task(trial, replicate, training, self.certified_share)


def drawn_points(name: str, trials: int) -> Points:
    """The first trials of a shipped sweep, as its study draws them."""
    from attnsweep.orchestrator.running.study import Study
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
    from attnsweep.search_spaces.loading import load_sweep

    spec = load_sweep(name)
    declared = _WORKLOADS[spec.workload].parameters.declared()
    with tempfile.TemporaryDirectory() as folder:
        study = Study(SweepDirectory.create(Path(folder, "sweep"), spec.but(trials=trials), {}))
        asked = [study.ask(trials).values for _ in range(trials)]
    fixed = spec.fixed()
    # A conditional parameter that a trial has not keeps its default.
    names = [name for name in spec.parameters() if name not in fixed]
    drawn = {name: [values.get(name, declared[name].default) for values in asked] for name in names}
    return Points(spec.workload, spec.seed, spec.certified_share, fixed, drawn)


if __name__ == "__main__":
    lines = [f'"{name}": {json.dumps(vars(drawn_points(name, trials)))}' for name, trials in TRIALS.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
