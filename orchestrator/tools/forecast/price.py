"""What a sweep costs, from packs of its own trainings that are trained for some seconds on this machine."""

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

from attnsweep.orchestrator.running.pack_sizer import PackSizer
from attnsweep.orchestrator.running.preflight.sample import Sample
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
"""Sizes of packs that are measured; the large one is at most half of a shape's trainings."""
_MOST_SHAPES = 4
_SECONDS_A_PACK = 4.0
"""Of CPU: on a busy machine a pilot takes longer, and is no shorter."""
_SECONDS = 60.0
"""Of CPU, for all packs: shapes that are left by then are left out, but for the first one."""
_FEWEST_STEPS, _LONGER = 16, 4
"""Steps of the first pilot of a shape, and how many times as many each further one has."""
_REPEATS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """What a sweep costs.

    Attributes:
        n_trainings: The most that it trains.
        core_seconds: Of training, on one core or GPU of this machine: the sum of `train_seconds`.
        core_seconds_low, core_seconds_high: The same from the fastest and from the slowest of three repetitions.
        is_bound: Whether pilots were cut short, so that trainings may end sooner than this counts.
        spread: The largest over the least seconds a training, of the shapes that were measured.
        n_rows: By table.
        n_bytes: On disk, all tables.
        n_shapes, n_measured: Shapes among the trials that were drawn, and those that pilots trained.
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
    """One shape.

    Attributes:
        n_trainings: How many of them the sweep has.
        seconds: Of all of them: by the median, the least and the most of what was measured.
        n_bytes, rows: Of one training.
        is_bound: Whether pilots were cut short.
    """

    n_trainings: float
    seconds: tuple[float, float, float]
    n_bytes: float
    rows: dict[str, float]
    is_bound: bool


def price_of(spec: Sweep, workload: Workload[Any], engine: Engine, seconds: float = _SECONDS) -> Price:
    """Trains packs of two sizes for each of the four most frequent shapes, each for some seconds, compiling apart.

    Shapes that are not measured count as those that are.

    Args:
        spec: The sweep.
        workload: Its workload.
        engine: What would take the sweep's steps.
        seconds: Of CPU, after which no further shape is begun; the most frequent one is always measured.

    The trials are drawn at random from the sweep's space, whatever its sampler is.

    Raises:
        UserError: If no trial can be trained, or the workload's code fails.
    """
    shapes = [[training.parameters for training in shape] for shape in Sample.of(spec, workload).shapes]
    shapes.sort(key=len, reverse=True)
    n_drawn = sum(map(len, shapes))
    n_trainings = spec.trials * most_wanted(spec.replicates)
    # One for all packs, as a sweep has it: it loads each program once.
    trainer = Trainer(workload, RunContext(spec.name, engine=engine, curves_every=spec.one_probe_in()), "cpu")
    measured: list[_Measured] = []
    until = time.process_time() + seconds
    for shape in shapes[:_MOST_SHAPES]:
        if not measured or time.process_time() < until:
            measured.append(_measured(shape, n_trainings * len(shape) / n_drawn, spec, workload, trainer))
    scale = n_trainings / sum(each.n_trainings for each in measured)
    per_training = [each.seconds[0] / each.n_trainings for each in measured]
    tables = sorted({table for each in measured for table in each.rows})
    core_seconds, low, high = (scale * sum(each.seconds[at] for each in measured) for at in range(3))
    return Price(
        n_trainings=n_trainings,
        core_seconds=core_seconds,
        core_seconds_low=low,
        core_seconds_high=high,
        is_bound=any(each.is_bound for each in measured),
        spread=max(per_training) / min(per_training),
        n_rows={
            name: round(scale * sum(each.n_trainings * each.rows.get(name, 0.0) for each in measured))
            for name in tables
        },
        n_bytes=round(scale * sum(each.n_trainings * each.n_bytes for each in measured)),
        n_shapes=len(shapes),
        n_measured=len(measured),
    )


def seconds_of_packs(n_trainings: int, seconds: Mapping[int, float]) -> float:
    """The seconds of all trainings of a shape, in the packs that one trainer makes of them.

    Args:
        n_trainings: Their number.
        seconds: Of a pack, by one or two sizes. Between and beyond these, a further training costs the same each time.
    """
    (smallest, at_smallest), *_, (largest, at_largest) = [*sorted(seconds.items()), *sorted(seconds.items())]
    each = at_smallest / smallest
    if largest > smallest:
        each = min(max((at_largest - at_smallest) / (largest - smallest), 0.0), each)
    sizer, total, left = PackSizer(None), 0.0, n_trainings
    while left:
        size = min(sizer.size(left), left)
        its = max(at_largest + each * (size - largest), each * size)
        sizer.measured(size, size / its)
        total, left = total + its, left - size
    return total


def _measured(
    shape: list[TrainingParameters], n_trainings: float, spec: Sweep, workload: Workload[Any], trainer: Trainer
) -> _Measured:
    n_all = max(round(n_trainings), 1)
    large = min(_LARGE, n_all // 2)
    sizes = [min(_SMALL, n_all), *([large] if large > _SMALL else [])]
    pilots = [_longest(shape, size, spec, workload, trainer) for size in sizes]
    (trained, _, n_steps), n_lanes, whole = pilots[-1], sizes[-1], shape[0].n_steps
    probes = len(workload.probe_steps(shape[0])) / len(workload.probe_steps(_shortened(shape[0], n_steps)))
    tables = {"trainings": trained.rows.trainings, "curves": trained.rows.curves, "heads": trained.rows.heads}
    grows = {name: 1.0 if name == "trainings" else probes for name in tables}
    present = {name: table for name, table in tables.items() if table is not None}
    of_packs = [[each * whole / steps for each in seconds] for _, seconds, steps in pilots]
    median, low, high = (
        seconds_of_packs(n_all, dict(zip(sizes, map(choose, of_packs), strict=True)))
        for choose in (statistics.median, min, max)
    )
    return _Measured(
        n_trainings=n_trainings,
        seconds=(median, low, high),
        n_bytes=sum(_bytes_of(table) * grows[name] for name, table in present.items()) / n_lanes,
        rows={name: table.num_rows * grows[name] / n_lanes for name, table in present.items()},
        is_bound=any(steps < whole for _, _, steps in pilots),
    )


def _longest(
    shape: list[TrainingParameters], n_lanes: int, spec: Sweep, workload: Workload[Any], trainer: Trainer
) -> tuple[Trained, list[float], int]:
    """The longest pack that the seconds of a pilot allow, the seconds that each repetition took, and its steps."""
    whole = shape[0].n_steps
    n_steps = _shortened(shape[0], min(_FEWEST_STEPS, whole)).n_steps
    # What is loaded or compiled at first is no price of a step.
    _train(_tasks(shape, n_lanes, spec, n_steps), workload, trainer)
    while True:
        tasks = _tasks(shape, n_lanes, spec, n_steps)
        started = time.process_time()
        trained, seconds = _train(tasks, workload, trainer)
        if n_steps == whole or _LONGER * (time.process_time() - started) > _SECONDS_A_PACK:
            again = [_train(tasks, workload, trainer)[1] for _ in range(_REPEATS - 1)]
            return trained, [seconds, *again], n_steps
        n_steps = min(_LONGER * n_steps, whole)


def _tasks(shape: list[TrainingParameters], n_lanes: int, spec: Sweep, n_steps: int) -> list[Task]:
    """Trainings of so many lanes, shortened to some steps."""
    tasks = []
    for lane in range(n_lanes):
        trial, replicate = lane % len(shape), lane // len(shape)
        parameters = _shortened(shape[trial], n_steps)
        tasks.append(Task(trial, replicate, Training(parameters, training_seed(spec.seed, trial, replicate))))
    return tasks


def _train(tasks: list[Task], workload: Workload[Any], trainer: Trainer) -> tuple[Trained, float]:
    """A trained pack, and the seconds for which it trained."""
    report = trainer.start(PackOrder("forecast", tasks))
    while isinstance(report, Progress):
        report = trainer.proceed()
    if isinstance(report, Raised):
        raise UserError(
            workload.name,
            given=f"an error on {platform.node()}: {report.error}",
            expected="a workload that trains",
            fix="correct it",
        )
    if not isinstance(report, Trained):
        raise PoolError("the pilot was interrupted")
    return report, float(pc.sum(report.rows.trainings["train_seconds"]).as_py())


def _shortened(parameters: TrainingParameters, n_steps: int) -> TrainingParameters:
    """The same with fewer steps; unchanged if its steps are counted in epochs."""
    try:
        return replace(parameters, n_steps=n_steps)
    except UserError:
        return parameters


def _bytes_of(table: pa.Table) -> int:
    """On disk, as a merged file holds it."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.tell()
