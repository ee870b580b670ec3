"""Estimates the cost of a sweep from short trial trainings ("pilots") on this machine, in batches as the sweep would
train them."""

import io
import platform
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from attnsweep.orchestrator.running.plan import PackSizer
from attnsweep.orchestrator.running.preflight import Sample
from attnsweep.orchestrator.storage.environment import Engine
from attnsweep.orchestrator.storage.errors import PoolError
from attnsweep.orchestrator.training.messages import PackOrder, Progress, Raised, RunContext, Trained
from attnsweep.orchestrator.training.tasks import Task, training_seed
from attnsweep.orchestrator.training.trainer import Trainer
from attnsweep.search_spaces.replication import most_wanted
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.parameters import TrainingParameters

_SMALL, _LARGE = PackSizer.smallest, 512
"""The two pack sizes that are measured for each shape (trainings that can share a pack). The large one is at most half
of the shape's trainings."""
_MOST_SHAPES = 4
_SECONDS_A_PACK = 4.0
"""CPU seconds of a pilot's longest pack. On a busy machine a pilot takes longer, but trains as many steps."""
_SECONDS = 60.0
"""CPU seconds of all pilots, after which no further shape is measured. The first shape is always measured."""
_FEWEST_STEPS, _LONGER = 16, 4
"""The steps of a shape's first pilot, and the factor by which the steps of each further pilot grow."""
_REPEATS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """The estimated cost of a sweep: seconds of training, and rows and bytes of the stored results.

    A shape is a set of trainings that can share a pack.

    Attributes:
        n_trainings: The largest number of trainings of the sweep.
        core_seconds: Training time on one core or GPU of this machine: the sum of `train_seconds`.
        core_seconds_low, core_seconds_high: The same from the fastest and from the slowest of three repetitions.
        is_bound: Whether pilots were cut short, so that trainings may end sooner than assumed.
        spread: The largest seconds per training over the least, among the measured shapes.
        n_rows: The number of rows by table.
        n_bytes: The size on disk of all tables.
        n_shapes, n_measured: The number of shapes among the drawn trials, and of those that pilots trained.
    """

    n_trainings: int
    core_seconds: float
    core_seconds_low: float
    core_seconds_high: float
    is_bound: bool
    spread: float
    n_rows: dict[str, int]
    n_bytes: int
    n_shapes: int
    n_measured: int


@dataclass(frozen=True, slots=True)
class _Measured:
    """The cost of those trainings of a sweep that can share a batched program, as measured with short trial trainings.

    Attributes:
        n_trainings: The expected number of these trainings in the sweep.
        seconds: The seconds of all of them, from the median, the fastest and the slowest repetition.
        n_bytes, rows: The size on disk and the number of rows by table of one training.
        is_bound: Whether the trial trainings were cut short.
    """

    n_trainings: float
    seconds: tuple[float, float, float]
    n_bytes: float
    rows: dict[str, float]
    is_bound: bool


def price_of(spec: Sweep, workload: Workload[Any], engine: Engine, seconds: float = _SECONDS) -> Price:
    """Estimates the cost of a sweep by timing short trial trainings ("pilots").

    They are timed for each of the four most frequent shapes (equal static parameters), in batches of two sizes. Each
    pilot trains for some seconds, compilation excluded. Shapes that are not measured count as the average of those that
    are. The trials are drawn at random from the sweep's space, whatever its sampler is.

    Args:
        engine: The engine that would take the sweep's steps.
        seconds: CPU time after which no further shape is begun; the most frequent one is always measured.

    Raises:
        UserError: If no trial can be trained, or the workload's code fails.
    """
    shapes = [[training.parameters for training in shape] for shape in Sample.of(spec, workload).shapes]
    shapes.sort(key=len, reverse=True)
    n_drawn = sum(map(len, shapes))
    n_trainings = spec.trials * most_wanted(spec.replicates)
    # One trainer measures all trainings, because it loads each compiled program only once, as a trainer of a sweep
    # does.
    trainer = Trainer(workload, RunContext(spec.name, engine=engine, curves_every=spec.one_probe_in()), "cpu")
    measured: list[_Measured] = []
    until = time.process_time() + seconds
    for shape in shapes[:_MOST_SHAPES]:
        if not measured or time.process_time() < until:
            measured.append(_measured(shape, n_trainings * len(shape) / n_drawn, spec, workload, trainer))
    scale = n_trainings / sum(shape_cost.n_trainings for shape_cost in measured)
    per_training = [shape_cost.seconds[0] / shape_cost.n_trainings for shape_cost in measured]
    tables = sorted({table for shape_cost in measured for table in shape_cost.rows})
    core_seconds, low, high = (scale * sum(shape_cost.seconds[index] for shape_cost in measured) for index in range(3))
    return Price(
        n_trainings=n_trainings,
        core_seconds=core_seconds,
        core_seconds_low=low,
        core_seconds_high=high,
        is_bound=any(shape_cost.is_bound for shape_cost in measured),
        spread=max(per_training) / min(per_training),
        n_rows={
            name: round(scale * sum(shape_cost.n_trainings * shape_cost.rows.get(name, 0.0) for shape_cost in measured))
            for name in tables
        },
        n_bytes=round(scale * sum(shape_cost.n_trainings * shape_cost.n_bytes for shape_cost in measured)),
        n_shapes=len(shapes),
        n_measured=len(measured),
    )


def seconds_of_packs(n_trainings: int, seconds: Mapping[int, float]) -> float:
    """Estimates how many seconds one trainer needs for `n_trainings` trainings that can share batched programs, if it
    divides them into packs (one batched program each).

    Args:
        seconds: The seconds of a pack by pack size, for one or two sizes. Interpolation and extrapolation are linear.
    """
    (smallest, at_smallest), *_, (largest, at_largest) = [*sorted(seconds.items()), *sorted(seconds.items())]
    per_lane = at_smallest / smallest
    if largest > smallest:
        per_lane = min(max((at_largest - at_smallest) / (largest - smallest), 0.0), per_lane)
    sizer, total, left = PackSizer(None), 0.0, n_trainings
    while left:
        size = min(sizer.size(left), left)
        pack_seconds = max(at_largest + per_lane * (size - largest), per_lane * size)
        sizer.measured(size, size / pack_seconds)
        total, left = total + pack_seconds, left - size
    return total


def _measured(
    shape: list[TrainingParameters], n_trainings: float, spec: Sweep, workload: Workload[Any], trainer: Trainer
) -> _Measured:
    n_all = max(round(n_trainings), 1)
    large = min(_LARGE, n_all // 2)
    sizes = [min(_SMALL, n_all), *([large] if large > _SMALL else [])]
    pilots = [_longest(shape, size, spec, workload, trainer) for size in sizes]
    (trained, _, n_steps), n_lanes, all_steps = pilots[-1], sizes[-1], shape[0].n_steps
    probes = len(workload.probe_steps(shape[0])) / len(workload.probe_steps(_shortened(shape[0], n_steps)))
    tables = {"trainings": trained.rows.trainings, "curves": trained.rows.curves, "heads": trained.rows.heads}
    growth = {name: 1.0 if name == "trainings" else probes for name in tables}
    present = {name: table for name, table in tables.items() if table is not None}
    pack_seconds = [[repetition * all_steps / steps for repetition in seconds] for _, seconds, steps in pilots]
    median, low, high = (
        seconds_of_packs(n_all, dict(zip(sizes, map(choose, pack_seconds), strict=True)))
        for choose in (statistics.median, min, max)
    )
    return _Measured(
        n_trainings=n_trainings,
        seconds=(median, low, high),
        n_bytes=sum(_bytes_of(table) * growth[name] for name, table in present.items()) / n_lanes,
        rows={name: table.num_rows * growth[name] / n_lanes for name, table in present.items()},
        is_bound=any(steps < all_steps for _, _, steps in pilots),
    )


def _longest(
    shape: list[TrainingParameters], n_lanes: int, spec: Sweep, workload: Workload[Any], trainer: Trainer
) -> tuple[Trained, list[float], int]:
    """Trains a pack of `n_lanes` trainings (one batched program) several times, each time with more steps, until the
    next time would take too long or the pack has had all its steps. The last of these packs, the longest, is trained
    again a few times.

    Returns, for the longest pack: the trainer's report, the seconds of each of its repetitions, and the number of
    steps.
    """
    all_steps = shape[0].n_steps
    n_steps = _shortened(shape[0], min(_FEWEST_STEPS, all_steps)).n_steps
    # The first run is not timed, because it loads and compiles programs, which is not part of the cost of a step.
    _train(_tasks(shape, n_lanes, spec, n_steps), workload, trainer)
    while True:
        tasks = _tasks(shape, n_lanes, spec, n_steps)
        started = time.process_time()
        trained, seconds = _train(tasks, workload, trainer)
        if n_steps == all_steps or _LONGER * (time.process_time() - started) > _SECONDS_A_PACK:
            again = [_train(tasks, workload, trainer)[1] for _ in range(_REPEATS - 1)]
            return trained, [seconds, *again], n_steps
        n_steps = min(_LONGER * n_steps, all_steps)


def _tasks(shape: list[TrainingParameters], n_lanes: int, spec: Sweep, n_steps: int) -> list[Task]:
    tasks = []
    for lane in range(n_lanes):
        replicate, trial = divmod(lane, len(shape))
        parameters = _shortened(shape[trial], n_steps)
        tasks.append(Task(trial, replicate, Training(parameters, training_seed(spec.seed, trial, replicate))))
    return tasks


def _train(tasks: list[Task], workload: Workload[Any], trainer: Trainer) -> tuple[Trained, float]:
    report = trainer.start(PackOrder("forecast", tasks))
    while isinstance(report, Progress):
        report = trainer.proceed()
    if isinstance(report, Raised):
        raise UserError(
            workload.name,
            given=f"a training that fails on the machine {platform.node()}: {report.error}",
            expected="a workload whose trainings run without an error",
            fix="correct the workload's code",
        )
    if not isinstance(report, Trained):
        raise PoolError("the pilot run, which measures speed for the forecast, was interrupted")
    return report, float(pc.sum(report.rows.trainings["train_seconds"]).as_py())


def _shortened(parameters: TrainingParameters, n_steps: int) -> TrainingParameters:
    """Returns a training's parameters with fewer steps; unchanged if the workload derives the number of steps from
    epochs."""
    try:
        return replace(parameters, n_steps=n_steps)
    except UserError:
        return parameters


def _bytes_of(table: pa.Table) -> int:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.tell()
