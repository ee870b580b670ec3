"""A problem's table of data: made once, copied into each module, its rows in the order of each training's split."""

import random
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.problem.arguments import Call

Data: TypeAlias = tuple[tuple[Tensor, ...], Tensor]
"""Inputs and target, the examples along the first axis of each."""

TABLE = "table_"
"""The prefix of the buffers with a table's columns, their rows in the order of the training's split: those trained on
come first. They are buffers, because what a loss reads from elsewhere cannot be compiled."""


def checked(data: Any) -> Data:
    """What a function of data returned, checked."""
    if not isinstance(data, tuple) or len(data) != 2 or not isinstance(data[1], Tensor):
        raise SpecError(
            "data", given=type(data).__name__, expected="a pair (inputs, target) of tensors", fix="return both"
        )
    inputs = data[0] if isinstance(data[0], tuple) else (data[0],)
    if not all(isinstance(each, Tensor) for each in inputs):
        raise SpecError(
            "data", given=data[0], expected="inputs that are a tensor, or a tuple of tensors", fix="make tensors of it"
        )
    return inputs, data[1]


def columns_in(module: nn.Module) -> list[Tensor]:
    """The inputs and the target of the module's table."""
    return [value for name, value in module.named_buffers() if name.startswith(TABLE)]


def rows_in(module: Any, which: str) -> Data:
    """The rows of its table that a training is trained on; or those held out, all where none is."""
    *inputs, target = columns_in(module)
    n_known = n_trained_on(module.of_problem.train_fraction, len(target))
    chosen = slice(n_known)
    if which == "held out" and n_known < len(target):
        chosen = slice(n_known, None)
    return tuple(each[chosen] for each in inputs), target[chosen]


def n_trained_on(train_fraction: float, n_rows: int) -> int:
    """The rows that a training is trained on, at least one."""
    return min(max(round(train_fraction * n_rows), 1), n_rows)


@lru_cache(maxsize=32)
def table_of(data: Call, values: tuple[tuple[str, Value], ...]) -> Data:
    """The table that a function makes of some values; it has to make the same one each time.

    Raises:
        SpecError: If it does not, or its inputs and target differ in their number of rows.
    """
    (inputs, target), again = (checked(_seeded(data, dict(values))) for _ in range(2))
    if {len(each) for each in inputs} != {len(target)} or len(target) < 2:
        raise SpecError(
            "data",
            given=f"{[len(each) for each in inputs]} rows of inputs and {len(target)} of the target",
            expected="two rows or more, as many of each",
            fix="put the examples along the first axis",
        )
    if not all(map(torch.equal, (*inputs, target), (*again[0], again[1]))):
        raise SpecError(
            "data",
            given="other tensors when it is called again",
            expected="the same table each time: the split differs between seeds, the table does not",
            fix="take a `draw`, for data that differ between trainings; or seed your own generator",
        )
    return inputs, target


def _seeded(data: Call, values: Mapping[str, Value]) -> Any:
    """The global generators are seeded before, and as they were afterwards."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            np.random.seed(0)
            random.seed(0)
            return data(values)
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
