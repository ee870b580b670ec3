"""The data of a problem made by `attnsweep.problem`: random numbers for one training, and tables (fixed data sets).

A table is made once per process, and copied into every module with the training rows of its split first.
"""

from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.construction import seeded_generators
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.problem.functions import Call


class Draw:
    """Draws random numbers for one training at one step. Successive calls of its methods draw different numbers.

    With equal seed, use and step, the n-th call always draws the same numbers.

    Args:
        seed: () int64, the key of the numbers.
        use: The use of the numbers: `train`, `eval` or `fixed`.
        own_seed: () int64, the training's own seed, which is the key of the method `fixed`; default `seed`.
    """

    def __init__(self, seed: Tensor, use: str, step: int, own_seed: Tensor | None = None) -> None:
        self._own_seed, self._use, self._step = seed if own_seed is None else own_seed, use, step
        self._streams = Streams(seed.unsqueeze(0))
        self._n_calls = 0

    @cached_property
    def fixed(self) -> "Draw":
        """A `Draw` that gives the same numbers at every step of training and evaluation. Use it for random numbers that
        define the training's task. Its n-th call in a call of `data` draws the same numbers at every step."""
        return Draw(self._own_seed, "fixed", 0)

    def uniform(self, *shape: int) -> Tensor:
        """Draws independent float64 numbers, uniform in [0, 1), of the given shape."""
        return self._streams.uniform(self._name(), shape, self._step)[0]

    def normal(self, *shape: int) -> Tensor:
        """Draws independent float64 numbers from the standard normal distribution, of the given shape."""
        return self._streams.normal(self._name(), shape, self._step)[0]

    def integers(self, n_values: int, *shape: int) -> Tensor:
        """Draws independent int64 numbers, uniform over 0 to n_values - 1, of the given shape."""
        return self._streams.integers(self._name(), shape, n_values, self._step)[0]

    def permutation(self, n: int, *shape: int) -> Tensor:
        """Draws independent random permutations of the numbers 0 to n - 1, int64 (*shape, n)."""
        return torch.argsort(self.uniform(*shape, n), dim=-1)

    def _name(self) -> str:
        self._n_calls += 1
        return f"problem/{self._use}/{self._n_calls}"


Data: TypeAlias = tuple[tuple[Tensor, ...], Tensor]
"""Inputs and target, with the examples along the first axis of all tensors."""

TABLE = "of_problem_table_"
"""The prefix of the buffers that hold a table's columns, with the rows of the training part first. Columns are buffers
because a compiled loss can read only parameters, buffers and the batch."""


def checked(data: Any) -> Data:
    """Checks the result of the user's data function, and makes the inputs a tuple.

    Raises:
        SpecError: If the result is not a pair (inputs, target) of tensors.
    """
    if not isinstance(data, tuple) or len(data) != 2 or not isinstance(data[1], Tensor):
        raise SpecError(
            "data",
            given=type(data).__name__,
            expected="a function that returns a pair (inputs, target) of tensors",
            fix="let the function `data` return (inputs, target)",
        )
    inputs = data[0] if isinstance(data[0], tuple) else (data[0],)
    if not all(isinstance(value, Tensor) for value in inputs):
        raise SpecError(
            "data",
            given=data[0],
            expected="inputs that are a tensor, or a tuple of tensors",
            fix="convert the inputs to tensors",
        )
    return inputs, data[1]


def columns_in(module: nn.Module) -> list[Tensor]:
    """Returns the tensors of the table (fixed data set) that is stored in a module's buffers: the inputs, then the
    target."""
    return [value for name, value in module.named_buffers() if name.startswith(TABLE)]


def rows_in(module: Any, which: str) -> Data:
    """Returns rows of the table (fixed data set) that is stored in a module: those held out if `which` is `held out`,
    else those for training. If no rows are held out, it returns all rows in both cases."""
    *inputs, target = columns_in(module)
    n_rows = n_trained_on(module.of_problem["train_fraction"], len(target))
    rows = slice(n_rows)
    if which == "held out" and n_rows < len(target):
        rows = slice(n_rows, None)
    return tuple(column[rows] for column in inputs), target[rows]


def n_trained_on(train_fraction: float, n_rows: int) -> int:
    """Returns how many rows of a table (fixed data set) are used for training: the given fraction, but at least 1."""
    return min(max(round(train_fraction * n_rows), 1), n_rows)


@lru_cache(maxsize=2)
def order_of_rows(streams: Streams, n_rows: int, epoch: int, used_from: int) -> Tensor:
    """Draws each training's order of the table's training rows in an epoch, (n_trainings, n_rows)."""
    return torch.argsort(streams.uniform("problem/batch", (n_rows,), epoch, used_from), dim=-1)


@lru_cache(maxsize=32)
def table_of(data: Call, values: tuple[tuple[str, Value], ...]) -> Data:
    """Makes a table by two calls of the user's function, with global random generators in two different states: a table
    serves trainings of all seeds, so it must not be random.

    Raises:
        SpecError: If the two tables differ, or inputs and target differ in their number of rows.
    """
    tables = []
    for seed in range(2):
        with seeded_generators(seed):
            tables.append(checked(data(dict(values))))
    (inputs, target), again = tables
    if {len(column) for column in inputs} != {len(target)} or len(target) < 2:
        raise SpecError(
            "data",
            given=f"inputs of {[len(column) for column in inputs]} rows and a target of {len(target)} rows",
            expected="at least two rows, and equally many rows of inputs and target",
            fix="give the first axis of each tensor one entry per example",
        )
    if not all(map(torch.equal, (*inputs, target), (*again[0], again[1]))):
        raise SpecError(
            "data",
            given="a function that returns other tensors when it is called again",
            expected="a function that returns the same tensors in every call, because only the split may differ"
            " between seeds",
            fix="add an argument `draw` for data that differ between trainings, or seed a generator within `data`",
        )
    return inputs, target
