"""The dimensions of a search space: how a parameter, or several together, vary over the trials of a sweep."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import Discriminator, Field, PlainValidator, Strict, Tag, model_validator

from attnsweep.search_spaces.model import SpecModel
from attnsweep.workloads.errors import SpecError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Scalar: TypeAlias = bool | int | float | str | None

_LARGEST = 2**53
"""Optuna draws whole numbers as doubles."""


def _check_scalar(value: object) -> object:
    if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
        return value
    raise ValueError("a finite number, a text, true, false or null")


_CheckedScalar: TypeAlias = Annotated[Scalar, PlainValidator(_check_scalar)]
Scalars: TypeAlias = Annotated[tuple[_CheckedScalar, ...], Field(min_length=1), Strict(False)]
"""A tuple, or a list when read from JSON."""


class Positional(SpecModel):
    """Its first fields can be given by position, as in Optuna's `suggest_float(name, low, high)`."""

    positional: ClassVar[tuple[str, ...]]

    def __init__(self, *values: Any, **fields: Any) -> None:
        named = dict(zip(self.positional, values, strict=False))
        if len(values) > len(self.positional) or named.keys() & fields:
            expected = f"the fields {', '.join(self.positional)} by position, once, and all others by name"
            fix = f"write {type(self).__name__}({', '.join(f'{name}=...' for name in self.positional)})"
            raise SpecError(type(self).__name__, given=f"{len(values)} values by position", expected=expected, fix=fix)
        super().__init__(**named, **fields)


class Categorical(Positional):
    """A parameter that takes one of several values: `Categorical(("a", "b"))`. A value may be `None`."""

    positional = ("choices",)

    kind: Literal["categorical"] = "categorical"
    choices: Scalars

    if TYPE_CHECKING:

        def __init__(self, choices: Sequence[Scalar]) -> None: ...

    def distribution(self) -> "BaseDistribution":
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.choices)

    def grid(self) -> list[Scalar]:
        return list(self.choices)


class _Range(Positional):
    """Subclasses declare `low` and `high`."""

    positional = ("low", "high")

    log: bool = False
    points: int | None = Field(default=None, ge=1, le=2**31 - 1)
    """How many values `grid`, which needs it, takes from `low` to `high`: 1 the middle; an `Int` may have fewer."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        low, high = (getattr(self, name) for name in self.positional)
        if not low <= high:
            raise SpecError("low", given=low, expected=f"at most high={high:g}", fix="exchange low and high")
        if self.log and low <= 0:
            raise SpecError("low", given=low, expected="low > 0, because log=True", fix="raise low, or remove log")
        return self

    def distribution(self) -> "BaseDistribution":
        from optuna import distributions

        kind = distributions.IntDistribution if isinstance(self, Int) else distributions.FloatDistribution
        return kind(*(getattr(self, name) for name in ("low", "high", "log")))

    def _spread(self, low: float, high: float) -> list[float]:
        n_points = self.points or 1
        if n_points == 1:
            return [math.sqrt(low * high) if self.log else (low + high) / 2]
        shares = [index / (n_points - 1) for index in range(n_points)]
        if self.log:
            inner = [math.exp(math.log(low) + share * math.log(high / low)) for share in shares]
        else:
            inner = [low + share * (high - low) for share in shares]
        return [low, *inner[1:-1], high]


class Float(_Range):
    """A real number from `low` to `high`, uniform, or uniform in its logarithm: `Float(1e-3, 1.0, log=True)`."""

    kind: Literal["float"] = "float"
    low: float
    high: float

    if TYPE_CHECKING:

        def __init__(self, low: float, high: float, *, log: bool = False, points: int | None = None) -> None: ...

    def grid(self) -> list[Scalar]:
        """Evenly spread over the range or its logarithm."""
        return list(self._spread(self.low, self.high))


class Int(_Range):
    """A whole number from `low` to `high`, both included: `Int(4, 12)`."""

    kind: Literal["int"] = "int"
    low: int = Field(ge=-_LARGEST, le=_LARGEST)
    high: int = Field(ge=-_LARGEST, le=_LARGEST)

    if TYPE_CHECKING:

        def __init__(self, low: int, high: int, *, log: bool = False, points: int | None = None) -> None: ...

    def grid(self) -> list[Scalar]:
        """Evenly spread, rounded."""
        return list(dict.fromkeys(round(value) for value in self._spread(self.low, self.high)))


def _kind(entry: object) -> str | None:
    if isinstance(entry, Mapping):
        return entry.get("kind")
    return getattr(entry, "kind", "value")


Simple: TypeAlias = Annotated[
    Annotated[_CheckedScalar, Tag("value")]
    | Annotated[Categorical, Tag("categorical")]
    | Annotated[Float, Tag("float")]
    | Annotated[Int, Tag("int")],
    Discriminator(_kind),
]
"""What depends on no other parameter. A bare value is a fixed parameter."""


class Conditional(SpecModel):
    """A parameter that varies as `then` if another one, `on`, has a value in `among`, and as `otherwise` if not.

    `on` is in the search space without a condition. `otherwise=None` is the workload's default.
    """

    kind: Literal["conditional"] = "conditional"
    on: str
    among: Scalars
    then: Simple
    otherwise: Simple | None = None

    def branch(self, value: Scalar) -> Simple | None:
        """How it varies where `on` has this value."""
        return self.then if value in self.among else self.otherwise


class Zip(Positional):
    """Parameters that vary together, a row of values in each trial: `"d_model, n_heads": Zip(((16, 2), (32, 4)))`."""

    positional = ("rows",)

    kind: Literal["zip"] = "zip"
    rows: Annotated[tuple[Scalars, ...], Field(min_length=1), Strict(False)]

    if TYPE_CHECKING:

        def __init__(self, rows: Sequence[Sequence[Scalar]]) -> None: ...

    def drawn(self) -> Categorical:
        """A choice among the rows, each as a JSON text such as `[16, 2]`."""
        return Categorical(tuple(json.dumps(row) for row in self.rows))


class Derived(Positional):
    """A parameter that is computed from others: `Derived("4 * d_model")` (docs/sweeps.md)."""

    positional = ("formula",)

    kind: Literal["derived"] = "derived"
    formula: str

    if TYPE_CHECKING:

        def __init__(self, formula: str) -> None: ...


Dimension: TypeAlias = Annotated[
    Annotated[_CheckedScalar, Tag("value")]
    | Annotated[Categorical, Tag("categorical")]
    | Annotated[Float, Tag("float")]
    | Annotated[Int, Tag("int")]
    | Annotated[Conditional, Tag("conditional")]
    | Annotated[Zip, Tag("zip")]
    | Annotated[Derived, Tag("derived")],
    Discriminator(_kind),
]

Varied: TypeAlias = Categorical | Float | Int
"""What varies and depends on no other parameter."""
