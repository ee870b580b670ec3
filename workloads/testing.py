"""Checks of a workload, for its author's tests: does it meet all that the engine relies on?

A failed check raises an `AssertionError` that says which duty is broken, by how much, and where to look.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnsweep.workloads.engine.checkpoint import from_bytes, to_bytes
from attnsweep.workloads.engine.construction import seeded_generators
from attnsweep.workloads.engine.contract import Batch, Lanes, P, Training, Workload
from attnsweep.workloads.engine.judging import first_held, judged, least_losses
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.plain import check_as_plain
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.errors import SpecError, UserError
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.registry import check_declarations

RELATIVE_TOLERANCE = 1e-5
"""Accepted between the losses of a training in two packs."""

_TRAININGS = 7
_QUICK_TRAININGS, _QUICK_STEPS = 3, 6
_LOSSES = ("loss", "eval_loss")
_IS_VICTIM = "attnsweep.workloads.testing: whose loss turns NaN"
_Ends = dict[str, NDArray[Any]]
"""By name, what two programs must agree on: losses, (n_trainings, n_probes), and how trainings ended."""


def check_workload(workload: Workload[P], parameters: Sequence[P], *, quick: bool = False) -> None:
    """Runs all checks of this module. Trainings that can share a pack are checked together, with `vmap` and a trainer's
    settings (one thread); nothing is compiled.

    Args:
        parameters: A few for every set of static parameters.
        quick: Few trainings of few steps, while you write the workload. That takes a small part of the time, and misses
            faults that only later steps show.
    """
    if quick:
        parameters = [_shortened(setting) for setting in parameters]
    ordered = sorted(parameters, key=lambda setting: repr(setting.static_key()))
    for _, same_shape in groupby(ordered, key=lambda setting: setting.static_key()):
        settings = list(same_shape)
        n_trainings = max(_QUICK_TRAININGS, len(settings)) if quick else _TRAININGS
        trainings = [Training(settings[seed % len(settings)], seed) for seed in range(n_trainings)]
        for check in _CHECKS_OF_A_SHAPE:
            with training_settings():
                try:
                    check(workload, trainings)
                except UserError as error:
                    raise AssertionError(f"{workload.name}: a check failed: {error}") from error


def _shortened(parameters: P) -> P:
    try:
        return replace(parameters, n_steps=min(parameters.n_steps, _QUICK_STEPS))
    except UserError:  # another parameter determines `n_steps`
        return parameters


def check_same_seed_same_result(workload: Workload[P], trainings: Sequence[Training[P]]) -> None:
    """Two runs of the same trainings agree to the last bit, whatever the state of global random generators."""
    runs: list[_Ends] = []
    for state in range(2):
        with seeded_generators(state):
            pack = Pack(workload, trainings)
            runs.append(_ends(pack, workload, trainings) | dict(pack.result().evidence.metrics))
    difference = _difference(runs[0], runs[1])
    assert not difference, (
        f"{workload.name}: two runs of the same pack differ: {difference}; outside of `model`, draw all randomness "
        "by `draw`"
    )


def check_fused_equals_alone(workload: Workload[P], trainings: Sequence[Training[P]]) -> None:
    """A training gives the same result alone, among others, and among them in reverse order: losses within
    `RELATIVE_TOLERANCE` at every probe, and equal outcome, detail, number of steps and step of divergence."""
    fused = _ends(Pack(workload, trainings), workload, trainings)
    for lanes in (slice(None, None, -1), *(slice(lane, lane + 1) for lane in range(len(trainings)))):
        other = _ends(Pack(workload, trainings[lanes]), workload, trainings[lanes])
        difference = _difference(_rows(fused, lanes), other, RELATIVE_TOLERANCE)
        assert not difference, (
            f"{workload.name}: lanes {lanes} differ between packs: {difference} (at most {RELATIVE_TOLERANCE:g}); does "
            "`loss` or `data` mix trainings, does a condition compare them, or does a static parameter vary?"
        )


def check_lanes_are_isolated(workload: Workload[P], trainings: Sequence[Training[P]]) -> None:
    """If one training's loss and gradients turn NaN half-way, no bit of any other changes."""
    clean = _ends(Pack(workload, trainings), workload, trainings)
    # A step takes at least one evaluation, so the training still runs half-way.
    victim = int(clean["n_steps"].argmax())
    poisonous: Any = copy.copy(workload)
    poisonous.__class__ = type("Poisonous", (_Poison, type(workload)), {"victim": trainings[victim]})
    pack = Pack(poisonous, trainings)
    pack.advance(int(clean["n_steps"][victim]) // 2)
    poisonous.is_poisoned = True
    poisoned = _ends(pack, workload, trainings)
    assert poisoned["diverged_step"][victim] >= 0, (
        f"{workload.name}: a training whose loss was made NaN is not marked diverged; did it end before, as "
        f"`{poisoned['outcome'][victim]}`? Check trainings that are not solved where they start"
    )
    neighbours = np.arange(len(trainings)) != victim
    difference = _difference(_rows(clean, neighbours), _rows(poisoned, neighbours))
    assert not difference, f"{workload.name}: a training that turned non-finite changed its neighbours: {difference}"


class _Poison(Workload[P]):
    """A mixin: once `is_poisoned`, the loss of the training `victim` is NaN."""

    victim: Training[P]
    is_poisoned = False

    def batches(self, lanes: Lanes[P], steps: range) -> list[Batch]:
        is_victim = torch.tensor([training is self.victim for training in lanes.trainings], device=lanes.device)
        return [batch | {_IS_VICTIM: is_victim} for batch in super().batches(lanes, steps)]

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        own = {name: value for name, value in batch.items() if name != _IS_VICTIM}
        loss: Tensor = super().loss(module, own)  # type: ignore[safe-super]  # a workload's class follows
        if not self.is_poisoned or _IS_VICTIM not in batch:
            return loss
        # Times NaN, so that gradients are NaN too; times 1 changes no bit of the others.
        return loss * torch.where(batch[_IS_VICTIM], torch.nan, 1.0).to(loss.dtype)


def check_resumed_equals_undisturbed(workload: Workload[P], trainings: Sequence[Training[P]]) -> None:
    """Trainings resumed half-way from a checkpoint end like uninterrupted ones, to the last bit."""
    undisturbed = _ends(Pack(workload, trainings), workload, trainings)
    pack = Pack(workload, trainings)
    pack.advance(int(undisturbed["n_steps"].max()) // 2)
    content = to_bytes(pack.checkpoint())
    # Trained to its end before the checkpoint is loaded: by then, state outside of it has changed, and shows below.
    difference = _difference(undisturbed, _ends(pack, workload, trainings))
    assert not difference, f"{workload.name}: taking a checkpoint changes how the pack ends: {difference}"
    resumed = _ends(Pack.resumed(workload, trainings, from_bytes(content)), workload, trainings)
    difference = _difference(undisturbed, resumed)
    assert not difference, (
        f"{workload.name}: a pack resumed from a checkpoint ends differently: {difference}; `data` must be a function "
        "of lanes and step alone: does the workload keep something from step to step?"
    )


def check_verdicts(workload: Workload[P], trainings: Sequence[Training[P]]) -> None:
    """Only declared outcomes and levels are given, and losses are not negative unless the workload allows that."""
    check_declarations(type(workload))
    result = Pack(workload, trainings).train_to_end()
    try:
        judged(workload, trainings[0].parameters, result.evidence)
        first_held(workload, trainings[0].parameters, result.evidence, result.last_probe)
    except (SpecError, ValueError) as error:
        raise AssertionError(f"{workload.name}: the labels of trainings are wrong: {error}") from error
    loss, levels = result.evidence.metrics["eval_loss"], result.evidence.levels
    impossible = loss[loss < least_losses(workload, levels)[:, None]]
    assert not impossible.size, (
        f"{workload.name}: eval_loss {impossible[0]:g} is negative, which ended its training as diverged; if it may be "
        "negative, set `loss_may_be_negative = True`"
    )
    assert "solved" in levels, f"{workload.name}: levels must contain `solved`"
    undeclared = {*levels} - {"solved", *workload.level_names}
    assert not undeclared, f"{workload.name}: levels {sorted(undeclared)} are not in level_names"


def defaults(workload: Workload[P], **values: Value) -> P:
    """The workload's default parameters with these changes, validated as in a sweep."""
    return workload.parameters.resolve(values)


_CHECKS_OF_A_SHAPE: tuple[Callable[..., None], ...] = (
    check_as_plain,
    check_verdicts,
    check_same_seed_same_result,
    check_fused_equals_alone,
    check_lanes_are_isolated,
    check_resumed_equals_undisturbed,
)


def _ends(pack: Pack[P], workload: Workload[P], trainings: Sequence[Training[P]]) -> _Ends:
    result = pack.train_to_end()
    verdicts = judged(workload, trainings[0].parameters, result.evidence)
    return {
        **{name: result.evidence.metrics[name] for name in _LOSSES},
        "outcome": result.at_last_probe(verdicts.outcome),
        "detail": result.at_last_probe(verdicts.detail),
        "n_steps": result.n_steps,
        "diverged_step": result.diverged_step,
    }


def _rows(ends: _Ends, lanes: slice | NDArray[np.bool_]) -> _Ends:
    return {name: values[lanes] for name, values in ends.items()}


def _difference(one: _Ends, other: _Ends, tolerance: float = 0.0) -> str:
    """In which quantities two runs of the same trainings differ; empty if in none."""
    differences = []
    for name, values in one.items():
        if values.dtype.kind == "f":
            relative = _largest_difference(values, other[name])
            differences += [f"{name} by {relative:.1e}"] if relative > tolerance else []
        elif (differs := values != other[name]).any():
            differences.append(f"{name} {values[differs][0]} and {other[name][differs][0]}")
    return ", ".join(differences)


def _largest_difference(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    if not np.array_equal(np.isnan(one), np.isnan(other)):
        return np.inf
    same = (one == other) | np.isnan(one)
    with np.errstate(invalid="ignore"):
        scaled = np.abs(one - other) / np.maximum(np.abs(one), np.finfo(one.dtype).tiny)
    return float(np.where(same, 0.0, scaled).max(initial=0.0))
