"""The conformance suite of workloads: what the engine relies on, checked on any `Workload`, yours included.

Call `check_workload` from a test, with a few parameter settings per shape of the problem:

    def test_my_workload() -> None:
        check_workload(MyWorkload(), [MyParameters(n_steps=50), MyParameters(n_steps=50, init_sigma=1e-3)])

Each check raises `AssertionError` saying which duty is broken, by how much, and where to look.
"""

import dataclasses
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import torch

from workloads.engine.contract import OUTCOMES, P, Training, Workload
from workloads.engine.pack import Pack
from workloads.engine.result import PackResult
from workloads.errors import SpecError
from workloads.parameters import Value

RELATIVE_TOLERANCE = 1e-5
"""Largest relative difference of a loss between packs."""


def check_workload(workload: Workload[P], parameters: Sequence[P]) -> None:
    """Runs every check of this module; trainings that may share a pack are checked together."""
    check_parameters_are_refused(workload)
    ordered = sorted(parameters, key=lambda each: repr(each.static_key()))
    for _, same_shape in groupby(ordered, key=lambda each: each.static_key()):
        settings = list(same_shape)
        trainings = [Training(settings[seed % len(settings)], seed) for seed in range(7)]
        check_same_seed_same_result(workload, trainings)
        check_fused_equals_alone(workload, trainings)
        check_lanes_are_isolated(workload, trainings)
        check_verdicts(workload, trainings)


def check_same_seed_same_result(workload: Workload[P], trainings: Sequence[Training[P]]) -> None:
    """Two runs of a pack agree to the last bit, and draw nothing from PyTorch's global generator."""
    state = torch.random.get_rng_state()
    first, second = _train(workload, trainings), _train(workload, trainings)
    assert _largest_difference(first, second) == 0.0, (
        f"{workload.name}: two runs of the same pack differ; draw all randomness from `lanes.streams`"
    )
    drawn = not torch.equal(state, torch.random.get_rng_state())
    assert not drawn, f"{workload.name}: drew from the global generator; `build`, `batch` and `loss` must not"


def check_fused_equals_alone(workload: Workload[P], trainings: Sequence[Training[P]]) -> None:
    """Each training has the same losses and the same last outcome in the pack, in reverse order, and alone."""
    fused = _train(workload, trainings)
    for order in ([slice(None, None, -1)], [slice(lane, lane + 1) for lane in range(len(trainings))]):
        for lanes in order:
            other = _train(workload, trainings[lanes])
            difference = _largest_difference(_lanes(fused, lanes), other)
            assert difference <= RELATIVE_TOLERANCE, (
                f"{workload.name}: losses of lanes {lanes} differ by {difference:.1e} between packs (at most "
                f"{RELATIVE_TOLERANCE:g}); does `loss` or `batch` mix lanes, or a static parameter vary?"
            )


def check_lanes_are_isolated(workload: Workload[P], trainings: Sequence[Training[P]]) -> None:
    """A training that blows up leaves its neighbours as they are, to the last bit."""
    blown_up = dataclasses.replace(trainings[0].parameters, learning_rate=1e30, init_sigma=1e3)
    poisoned = [Training(blown_up, trainings[0].seed), *trainings[1:]]
    neighbours = slice(1, None)
    clean = _lanes(_train(workload, trainings), neighbours)
    difference = _largest_difference(clean, _lanes(_train(workload, poisoned), neighbours))
    assert difference == 0.0, (
        f"{workload.name}: a diverging training changed its neighbours' losses by {difference:.1e}"
    )


def check_verdicts(workload: Workload[P], trainings: Sequence[Training[P]]) -> None:
    """Every probe of every training has an outcome that exists, and levels have declared names."""
    result = _train(workload, trainings)
    verdicts = workload.judge(trainings[0].parameters, result.evidence)
    shape = (len(trainings), result.evidence.steps.size)
    assert verdicts.outcome.shape == verdicts.detail.shape == shape, f"{workload.name}: judge must label (L, P) probes"
    unknown = set(np.unique(verdicts.outcome)) - set(OUTCOMES)
    assert not unknown, f"{workload.name}: judge returned unknown outcomes {sorted(unknown)}; known: {OUTCOMES}"
    named = set(result.evidence.levels)
    assert "solved" in named, f"{workload.name}: levels must contain `solved`"
    undeclared = named - {"solved", *workload.level_names}
    assert not undeclared, f"{workload.name}: levels {sorted(undeclared)} are not in level_names"


def check_parameters_are_refused(workload: Workload[P]) -> None:
    """Unknown names, wrong types and values out of range raise a `SpecError` that names the parameter."""
    bad: dict[str, object] = {"no_such_parameter": 1}
    for name, declared in workload.parameters.declared().items():
        bad[name] = float("nan") if declared.kind is float else object()
    for name, value in bad.items():
        message = _refusal(workload, name, value)
        assert message is not None, f"{workload.name}: {name}={value!r} was accepted"
        assert name in message, f"{workload.name}: the error for {name} does not name it: {message}"


def defaults(workload: Workload[P], **values: Value) -> P:
    """The workload's default parameters with some changed, checked like a user's."""
    return workload.parameters.resolve(values)


def _refusal(workload: Workload[P], name: str, value: object) -> str | None:
    try:
        workload.parameters.resolve({name: value})
    except SpecError as error:
        return str(error)
    return None


def _train(workload: Workload[P], trainings: Sequence[Training[P]]) -> PackResult:
    pack = Pack(workload, trainings)
    while not pack.advance(1_000):
        pass
    return pack.result()


def _lanes(result: PackResult, lanes: slice) -> PackResult:
    metrics = {name: table[lanes] for name, table in result.evidence.metrics.items()}
    return dataclasses.replace(result, evidence=dataclasses.replace(result.evidence, metrics=metrics))


def _largest_difference(one: PackResult, other: PackResult) -> float:
    """The largest relative difference of `eval_loss`; infinite where one of the two was not measured."""
    first, second = one.evidence.metrics["eval_loss"], other.evidence.metrics["eval_loss"]
    if not np.array_equal(np.isnan(first), np.isnan(second)):
        return np.inf
    scale = np.maximum(np.abs(first), np.finfo(first.dtype).tiny)
    return float(np.nanmax(np.abs(first - second) / scale, initial=0.0))
