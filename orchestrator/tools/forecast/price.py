"""What a sweep costs, from packs of its own trainings that are trained for some seconds on this machine."""

import io
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from attnsweep.orchestrator.storage.environment import Engine
from attnsweep.orchestrator.storage.errors import PoolError
from attnsweep.orchestrator.training.identity import Task, training_seed
from attnsweep.orchestrator.training.messages import PackOrder, Progress, Raised, RunContext, Trained
from attnsweep.orchestrator.training.trainer import Trainer
from attnsweep.search_spaces.random_draws import drawn_parameters
from attnsweep.search_spaces.replication import most_wanted
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.parameters import TrainingParameters

_LANES = 64
_TRIALS = 64
_MOST_SHAPES = 4
_SECONDS_A_SHAPE = 5.0
_FEWEST_STEPS, _LONGER = 16, 4
"""Steps of the first pilot of a shape, and how many times as many each further one has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """What a sweep costs.

    Attributes:
        n_trainings: The most that it trains.
        core_seconds: Of training, on one core or GPU of this machine.
        is_bound: Whether pilots were cut short, so that trainings may end sooner than this counts.
        spread: The largest over the least seconds a training, of the shapes that were measured.
        n_rows: By table.
        n_bytes: On disk, all tables.
        n_shapes, n_measured: Shapes among the trials that were drawn, and those that pilots trained.
    """

    n_trainings: int
    core_seconds: float
    is_bound: bool
    spread: float
    n_rows: dict[str, int]
    n_bytes: int
    n_shapes: int
    n_measured: int


@dataclass(frozen=True, slots=True)
class _Measured:
    """One shape: seconds, bytes and rows of one training, its share of trials, and whether it was cut short."""

    weight: float
    seconds: float
    n_bytes: float
    rows: dict[str, float]
    is_bound: bool


def price_of(spec: Sweep, workload: Workload[Any], engine: Engine) -> Price:
    """Trains a pack of 64 for each of the four most frequent shapes, for some five seconds each, compiling apart.

    Args:
        spec: The sweep.
        workload: Its workload.
        engine: What would take the sweep's steps.

    The trials are drawn at random from the sweep's space, whatever its sampler is.

    Raises:
        UserError: If no trial can be trained, or the workload's code fails.
    """
    drawn = sorted(drawn_parameters(spec, workload.parameters, _TRIALS), key=lambda each: repr(each.static_key()))
    shapes = [list(group) for _, group in groupby(drawn, key=lambda each: each.static_key())]
    shapes.sort(key=len, reverse=True)
    measured = [_measured(shape, spec, workload, engine) for shape in shapes[:_MOST_SHAPES]]
    total = sum(each.weight for each in measured)
    n_trainings = spec.trials * most_wanted(spec.replicates)

    def mean(values: Sequence[float]) -> float:
        return sum(each.weight * value for each, value in zip(measured, values, strict=True)) / total

    seconds = [each.seconds for each in measured]
    tables = sorted({table for each in measured for table in each.rows})
    return Price(
        n_trainings=n_trainings,
        core_seconds=n_trainings * mean(seconds),
        is_bound=any(each.is_bound for each in measured),
        spread=max(seconds) / min(seconds),
        n_rows={table: round(n_trainings * mean([each.rows.get(table, 0.0) for each in measured])) for table in tables},
        n_bytes=round(n_trainings * mean([each.n_bytes for each in measured])),
        n_shapes=len(shapes),
        n_measured=len(measured),
    )


def _measured(shape: list[TrainingParameters], spec: Sweep, workload: Workload[Any], engine: Engine) -> _Measured:
    trained, seconds, n_steps = _longest(shape, spec, workload, engine)
    whole = shape[0].n_steps
    probes = len(workload.probe_steps(shape[0])) / len(workload.probe_steps(_shortened(shape[0], n_steps)))
    tables = {"trainings": trained.rows.trainings, "curves": trained.rows.curves, "heads": trained.rows.heads}
    grows = {name: 1.0 if name == "trainings" else probes for name in tables}
    present = {name: table for name, table in tables.items() if table is not None}
    return _Measured(
        weight=len(shape),
        seconds=seconds / _LANES * whole / n_steps,
        n_bytes=sum(_bytes_of(table) * grows[name] for name, table in present.items()) / _LANES,
        rows={name: table.num_rows * grows[name] / _LANES for name, table in present.items()},
        is_bound=n_steps < whole,
    )


def _longest(
    shape: list[TrainingParameters], spec: Sweep, workload: Workload[Any], engine: Engine
) -> tuple[Trained, float, int]:
    """The longest pack that the seconds of a pilot allow, the seconds it took, and its steps."""
    whole = shape[0].n_steps
    n_steps = _shortened(shape[0], min(_FEWEST_STEPS, whole)).n_steps
    # What is loaded or compiled at first is no price of a step.
    _train(shape, spec, workload, engine, n_steps)
    while True:
        trained, seconds = _train(shape, spec, workload, engine, n_steps)
        if n_steps == whole or _LONGER * seconds > _SECONDS_A_SHAPE:
            return trained, seconds, n_steps
        n_steps = min(_LONGER * n_steps, whole)


def _train(
    shape: list[TrainingParameters], spec: Sweep, workload: Workload[Any], engine: Engine, n_steps: int
) -> tuple[Trained, float]:
    """A pack of this shape, and the seconds it took."""
    tasks = []
    for lane in range(_LANES):
        trial, replicate = lane % len(shape), lane // len(shape)
        parameters = _shortened(shape[trial], n_steps)
        tasks.append(Task(trial, replicate, Training(parameters, training_seed(spec.seed, trial, replicate))))
    trainer = Trainer(workload, RunContext(spec.name, engine=engine), "cpu")
    started = time.perf_counter()
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
    return report, time.perf_counter() - started


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
