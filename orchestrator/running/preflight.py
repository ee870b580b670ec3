"""Checks a sweep on a random sample of its trainings, and refuses what cannot work."""

import time
from collections.abc import Sequence
from itertools import chain, groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnsweep.orchestrator.training.tasks import training_seed
from attnsweep.orchestrator.training.trainer import STOPS
from attnsweep.search_spaces.numbered_draws import drawn_parameters
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.declaration import check_spelling
from attnsweep.workloads.engine.construction import built_alone, check_alike, seeded_generators, starting_state
from attnsweep.workloads.engine.contract import Lanes, Training, Workload
from attnsweep.workloads.engine.functional import over_lanes
from attnsweep.workloads.engine.judging import first_held, judged
from attnsweep.workloads.engine.layout import measurable
from attnsweep.workloads.engine.outcomes import Evidence
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.plain import check_as_plain
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.errors import SpecError, UserError
from attnsweep.workloads.parameters import TrainingParameters
from attnsweep.workloads.user_code import user_code_of, users_code

_N_SAMPLED_TRIALS = 64
_START_SECONDS = 0.3
_N_COMPARED = 8
"""Modules that are built and compared with a shape's first at a time."""
_N_REHEARSED = 4
"""Trainings of each shape of a user's workload that are measured, twice."""
_MAX_WEIGHTS = 1_000_000
"""Larger modules are only built and, if a user's, rehearsed: computing losses may take long."""


def sampled(spec: Sweep, workload: Workload[Any]) -> list[list[Training[Any]]]:
    """Trainings by shape, of up to 64 trials that are drawn at random, whatever the sampler. Raises SpecError if the
    workload refuses every one."""
    drawn = sorted(drawn_parameters(spec, workload.parameters, _N_SAMPLED_TRIALS)[: spec.trials], key=_shape)
    return [
        [Training(parameters, training_seed(spec.seed, trial, 0)) for trial, parameters in enumerate(group)]
        for _, group in groupby(drawn, key=_shape)
    ]


def _shape(parameters: TrainingParameters) -> str:
    return repr(parameters.static_key())


def check_new(spec: Sweep, workload: Workload[Any]) -> None:
    """As `check_starts`; also refuses `stop_when` on a metric that the workload does not measure."""
    conditions = set[str]()
    for training, *_ in sampled(spec, workload):
        stop_when = training.parameters.stop_when
        if stop_when is not None and stop_when not in conditions:
            conditions.add(stop_when)
            first_probe(workload, training)
    check_starts(spec, workload)


def first_probe(workload: Workload[Any], training: Training[Any]) -> Evidence:
    """Only a training's measurements tell which metrics the workload has."""
    pack = Pack(workload, [training])
    with training_settings(), users_code(f"{workload.name}: measure", "metrics by name", "correct it"):
        pack.advance(1, n_probes=1)
    return pack.result().evidence


def check_starts(spec: Sweep, workload: Workload[Any]) -> None:
    """Tries a few trainings of each shape until the time is up, of the largest shape in any case.

    Raises SpecError if trainings cannot share a program, a label is unknown, or a user's code computes other numbers
    the second time or in plain PyTorch. Its other errors are left to the rows, unless no training can begin."""
    until, has_begun = time.monotonic() + _START_SECONDS, False
    shapes = sampled(spec, workload)
    with training_settings():
        # The largest first, to see in time what differs within a shape.
        for trainings in sorted(shapes, key=len, reverse=True):
            try:
                _start(spec, workload, trainings, until)
            except (UserError, *STOPS):
                raise
            except BaseException:  # noqa: BLE001  # The trainings' rows will contain it.
                continue
            has_begun = True
            if time.monotonic() > until:
                break
        if not has_begun:
            _check_one_begins(workload, shapes, spec.workload)


def _check_one_begins(workload: Workload[Any], shapes: Sequence[Sequence[Training[Any]]], name: str) -> None:
    raised: BaseException | None = None
    for training in chain.from_iterable(shapes):
        try:
            _rehearse(workload, [training])
        except STOPS:
            raise
        except MemoryError:  # A trainer may have more.
            return
        except BaseException as error:  # noqa: BLE001  # Raised below.
            raised = error
        else:
            return
    with users_code(name, "a training that can begin", "correct it"):
        assert raised is not None
        raise raised


def _start(spec: Sweep, workload: Workload[Any], trainings: Sequence[Training[Any]], until: float) -> None:
    # A lone module is compared with itself, built again.
    others = trainings[1:] or trainings
    _compute(workload, trainings[:1])
    if user_code_of(workload) is not None:
        _rehearse(workload, trainings[:_N_REHEARSED])
        other_seed = Training(trainings[0].parameters, training_seed(spec.seed, 0, 1))
        _compare(workload, [*trainings, other_seed])
    for first in range(0, len(others), _N_COMPARED):
        check_alike(workload, Lanes([trainings[0], *others[first : first + _N_COMPARED]], torch.device("cpu")))
        if time.monotonic() > until:
            break


def _compute(workload: Workload[Any], trainings: Sequence[Training[Any]]) -> None:
    lanes = Lanes(trainings, torch.device("cpu"))
    parameters, buffers, template = starting_state(workload, lanes)
    if sum(value[0].numel() for value in parameters.values()) <= _MAX_WEIGHTS:
        with torch.no_grad():
            over_lanes(template, workload.loss)(parameters, buffers, workload.batches(lanes, range(1))[0])


def _rehearse(workload: Workload[Any], trainings: Sequence[Training[Any]]) -> None:
    evidence, values = _measured(workload, trainings, seed=0)
    check_spelling(f"{workload.name}: metrics", evidence.metrics)
    judged(workload, trainings[0].parameters, evidence)
    first_held(workload, trainings[0].parameters, evidence, np.zeros(len(trainings), np.int64))
    _, again = _measured(workload, trainings, seed=1)
    for subject, value in values.items():
        if not np.array_equal(value, again[subject], equal_nan=True):
            given = "other numbers when the same training computes them again"
            expected = "numbers that follow from the training's parameters and seed, and the step"
            fix = "draw all random numbers in `data`, with its argument `draw`, none by torch.randn, NumPy or random"
            raise SpecError(subject, given=given, expected=expected, fix=fix)


def _measured(
    workload: Workload[Any], trainings: Sequence[Training[Any]], seed: int
) -> tuple[Evidence, dict[str, NDArray[Any]]]:
    lanes = Lanes(trainings, torch.device("cpu"))
    n_steps = lanes.shared.n_steps
    with seeded_generators(seed):
        drawn = [workload.batches(lanes, range(step, step + 1))[0] for step in (0, n_steps)]
        drawn.append(workload.eval_batch(lanes) | workload.fresh_eval_batch(lanes, 0))
        pack = Pack(workload, trainings)
        pack.advance(1, n_probes=1)
    result = pack.result()
    values = [value.numpy(force=True).ravel() for batch in drawn for value in measurable(batch).values()]
    return result.evidence, {
        "data": np.concatenate([np.empty(0), *values]),
        **{f"metric {name}": value for name, value in result.evidence.metrics.items()},
        **{f"level {name}": value for name, value in result.evidence.levels.items()},
        **{f"head {name}": value for probe in result.heads for name, value in probe.heads.scores.items()},
    }


def _compare(workload: Workload[Any], trainings: Sequence[Training[Any]]) -> None:
    """The first with the training that differs from it in most parameters."""
    first, *others = trainings
    values = first.parameters.values()

    def n_different(other: Training[Any]) -> int:
        return sum(value != values[name] for name, value in other.parameters.values().items())

    if sum(value.numel() for value in built_alone(workload, first).parameters()) <= _MAX_WEIGHTS:
        check_as_plain(workload, [first, max(others, key=n_different)])
