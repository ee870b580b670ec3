"""The data of a problem made by `attnsweep.problem`: random numbers for one training, and tables (fixed data sets),
held once, from whose rows batches are gathered. Axes: L training, P place in an order."""

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
    """Draws random numbers for one training at one step: with equal seed, use and step, the n-th call draws the same.

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
        """A `Draw` of the same numbers at every step and in evaluation, for what defines the task."""
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


INPUTS = "inputs/"
"""The prefix, in a batch, of the names of the module's arguments, which are numbered."""
_NOT_OF_DATA = frozenset({"module", "output", "weights", "draw", "fixed", "step"})


def checked(data: Any) -> Batch:
    """Returns what the user's data function gave as tensors by name."""
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

    Rounds of a Feistel network on pairs (x, y) add to one number a random function of the other; what leaves 0 to n - 1
    goes through them again (Black & Rogaway 2002).
    """
    down, across = _sides(n)
    drawn_LRN = streams.uniform(f"{name}/order", (_ROUNDS, across), turn, used_from)
    is_of_y_R1 = torch.arange(_ROUNDS, device=place_LP.device).unsqueeze(1) % 2
    shift_RLN = (drawn_LRN * (down + (across - down) * is_of_y_R1)).long().unbind(1)

    def once(number_LP: Tensor) -> Tensor:
        x_LP = number_LP // across
        y_LP = number_LP - across * x_LP
        for shift_x_LN, shift_y_LN in zip(shift_RLN[::2], shift_RLN[1::2], strict=True):
            x_LP = x_LP + shift_x_LN.gather(1, y_LP)
            x_LP -= down * (x_LP >= down)  # a third of the time of %
            y_LP = y_LP + shift_y_LN.gather(1, x_LP)
            y_LP -= across * (y_LP >= across)
        return x_LP * across + y_LP

    number_LP = once(place_LP)
    # A walk meets each number outside at most once. To ask whether any is left would wait for the device.
    for _ in range(down * across - n):
        number_LP = torch.where(number_LP >= n, once(number_LP), number_LP)
    return number_LP


@lru_cache
def _sides(n: int) -> tuple[int, int]:
    """Returns the sides of a rectangle, neither more than about twice the other, that has the fewest fields above n."""
    least = math.isqrt(n - 1) + 1
    sides = [(-(-n // across), across) for across in range(least, 2 * least + 1)]
    return min((pair for pair in sides if 2 * pair[0] >= pair[1]), key=math.prod)


_ROUNDS = 6
"""Four suffice against any test that sees few places (Luby & Rackoff 1988); the number is our choice."""


def n_trained_on(train_fraction: float, n_rows: int) -> int:
    return min(max(round(train_fraction * n_rows), 1), n_rows)


@lru_cache(maxsize=32)
def table_of(data: Call, values: tuple[tuple[str, Value], ...], device: torch.device) -> Batch:
    """Makes the table by two calls of the user's function, with global generators in different states, because a table
    of all seeds must not be random."""
    tables = []
    for seed in range(2):
        with seeded_generators(seed):
            tables.append(checked(data(dict(values))))
    table, again = tables
    check_rows(table, first_axis=0)
    if not all(torch.equal(column, again[name]) for name, column in table.items()):
        given = "a function that returns other tensors when it is called again"
        fix = "draw with an argument `draw`, or `fixed` for data that each training keeps"
        raise SpecError("data", given=given, expected="the same tensors in every call with the same split", fix=fix)
    return {name: column.to(device).unsqueeze(0) for name, column in table.items()}


def check_rows(table: Batch, first_axis: int) -> None:
    """Raises a `SpecError` unless all columns have equally many rows along an axis, at least two."""
    lengths = {name: column.shape[first_axis] if column.dim() > first_axis else 0 for name, column in table.items()}
    if len({*lengths.values()}) != 1 or min(lengths.values()) < 2:
        given = ", ".join(f"{name} of {n} rows" for name, n in lengths.items())
        expected = "at least two rows, and equally many rows of inputs and target"
        fix = "give the first axis of each tensor one entry per example"
        raise SpecError("data", given=given, expected=expected, fix=fix)
