"""The data of a user's problem: drawn at each step, or a table, held once, from whose rows batches are gathered.
Axes: L training, P place in an order, R round, N row or column of a rectangle."""

import math
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from attnsweep.workloads.engine.construction import seeded_generators
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.problem.functions import Call


class Draw:
    """Random numbers for one training at one step: with equal seed, use and step, the n-th call draws the same.

    Args:
        seed: () int64, the key of the numbers.
        use: `train`, `eval`, `initial` or `fixed`.
        own_seed: () int64, the training's own seed, the key of `fixed`; default `seed`.
    """

    def __init__(self, seed: Tensor, use: str, step: int | Tensor, own_seed: Tensor | None = None) -> None:
        self._own_seed, self._use, self._step = seed if own_seed is None else own_seed, use, step
        self._streams = Streams(seed.unsqueeze(0))
        self._n_calls = 0

    @cached_property
    def fixed(self) -> "Draw":
        """Draws the same numbers at every step and in evaluation, for what defines the task."""
        return Draw(self._own_seed, "fixed", 0)

    def uniform(self, *shape: int) -> Tensor:
        """float64, uniform in [0, 1)."""
        return self._streams.uniform(self._name(), shape, self._step)[0]

    def normal(self, *shape: int) -> Tensor:
        """float64, from N(0, 1)."""
        return self._streams.normal(self._name(), shape, self._step)[0]

    def integers(self, n_values: int, *shape: int) -> Tensor:
        """int64, uniform over 0 to n_values - 1."""
        return self._streams.integers(self._name(), shape, n_values, self._step)[0]

    def permutation(self, n: int, *shape: int) -> Tensor:
        """Permutations of 0 to n - 1, int64 (*shape, n)."""
        return torch.argsort(self.uniform(*shape, n), dim=-1)

    def _name(self) -> str:
        self._n_calls += 1
        return f"problem/{self._use}/{self._n_calls}"


INPUTS = "inputs/"
"""A batch holds the module's n-th argument as `inputs/<n>`."""
_NOT_OF_DATA = frozenset({"module", "output", "weights", "draw", "fixed", "step"})


def checked(data: Any) -> Batch:
    """What the user's data function gave, as a batch."""
    is_pair = isinstance(data, tuple) and len(data) == 2
    named = dict(zip(("inputs", "target"), data, strict=True)) if is_pair else data
    if not isinstance(named, dict) or not {"inputs", "target"} <= named.keys() or _NOT_OF_DATA & named.keys():
        given = sorted(map(str, named)) if isinstance(named, dict) else type(data).__name__
        expected = f"(inputs, target), or a dictionary of these and others, but no {', '.join(sorted(_NOT_OF_DATA))}"
        raise SpecError("data", given=given, expected=expected, fix="let the function `data` return (inputs, target)")
    inputs, others = named["inputs"], {name: value for name, value in named.items() if name != "inputs"}
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    batch = {f"{INPUTS}{place}": value for place, value in enumerate(arguments)} | others
    for name, value in batch.items():
        if not isinstance(value, Tensor):
            kind = type(value).__name__
            raise SpecError("data", given=f"{name}: {kind}", expected="tensors", fix=f"convert {name} to a tensor")
    return batch


def shuffled(streams: Streams, name: str, place_LP: Tensor, n: int, turn: int = 0, used_from: int = 0) -> Tensor:
    """What stands at these places of each training's own random order of 0 to n - 1, without making the whole order.

    A number is a field (x, y) of a rectangle. Rounds of a Feistel network add to x a random function of y, then to y
    one of x; what leaves 0 to n - 1 goes through them again (Black & Rogaway 2002).

    Args:
        turn: Numbers the orders of one `name`, such as those of epochs.
        used_from: The first step that uses this one.
    """
    down, across = _sides(n)
    drawn_LRN = streams.uniform(f"{name}/order", (_ROUNDS, across), turn, used_from)
    is_of_y_R1 = torch.arange(_ROUNDS, device=place_LP.device).unsqueeze(1) % 2
    shift_RLN = (drawn_LRN * (down + (across - down) * is_of_y_R1)).long().unbind(1)

    def through_rounds(number_LP: Tensor) -> Tensor:
        x_LP = number_LP // across
        y_LP = number_LP - across * x_LP
        for shift_x_LN, shift_y_LN in zip(shift_RLN[::2], shift_RLN[1::2], strict=True):
            x_LP = x_LP + shift_x_LN.gather(1, y_LP)
            x_LP -= down * (x_LP >= down)  # a third of the time of %
            y_LP = y_LP + shift_y_LN.gather(1, x_LP)
            y_LP -= across * (y_LP >= across)
        return x_LP * across + y_LP

    number_LP = through_rounds(place_LP)
    # A walk meets each number outside at most once. To ask whether any is left would wait for the device.
    for _ in range(down * across - n):
        number_LP = torch.where(number_LP >= n, through_rounds(number_LP), number_LP)
    return number_LP


@lru_cache
def _sides(n: int) -> tuple[int, int]:
    """The rectangle with the fewest fields, at least n, whose sides differ by at most a factor of about two."""
    shortest = math.isqrt(n - 1) + 1
    sides = [(-(-n // across), across) for across in range(shortest, 2 * shortest + 1)]
    return min((pair for pair in sides if 2 * pair[0] >= pair[1]), key=math.prod)


_ROUNDS = 6
"""Four suffice against any test that sees few places (Luby & Rackoff 1988); six are our choice."""


def n_trained_on(train_fraction: float, n_rows: int) -> int:
    return min(max(round(train_fraction * n_rows), 1), n_rows)


@lru_cache(maxsize=32)
def table_of(data: Call, values: tuple[tuple[str, Value], ...], device: torch.device) -> Batch:
    """Calls the user's function twice, with global generators in different states: a table of all seeds must not be
    random."""
    tables = []
    for seed in range(2):
        with seeded_generators(seed):
            tables.append(checked(data(dict(values))))
    table, redrawn = tables
    check_rows(table, first_axis=0)
    if not all(torch.equal(column, redrawn[name]) for name, column in table.items()):
        given = "a function that returns other tensors when it is called again"
        fix = "draw with an argument `draw`, or `fixed` for data that each training keeps"
        raise SpecError("data", given=given, expected="the same tensors in every call with the same arguments", fix=fix)
    return {name: column.to(device).unsqueeze(0) for name, column in table.items()}


def check_rows(table: Batch, first_axis: int) -> None:
    """Refuses columns of different lengths along an axis, or shorter than two."""
    lengths = {name: column.shape[first_axis] if column.dim() > first_axis else 0 for name, column in table.items()}
    if len({*lengths.values()}) != 1 or min(lengths.values()) < 2:
        given = ", ".join(f"{name} of {n} rows" for name, n in lengths.items())
        expected = "at least two rows, and equally many rows of inputs and target"
        fix = "give the first axis of each tensor one entry per example"
        raise SpecError("data", given=given, expected=expected, fix=fix)
