"""How a workload declares its parameters: once, as a frozen dataclass whose fields say type, range and role.

The declaration is what the search space is validated against, what the ledger's `param_<name>` columns are
typed by, and what decides which trainings may share a pack.
"""

import dataclasses
import difflib
import functools
import math
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, ClassVar, Self, TypeAlias

from workloads.errors import SpecError, UserError, in_words

Value: TypeAlias = bool | int | float | str | None

KINDS = (float, int, bool, str)
"""What a parameter may be."""

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
"""Of whole numbers: a column of the ledger has 64 bits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """One declared parameter.

    Attributes:
        name: The contract's word for it (`init_sigma`, `layer_norm_eps`, ...).
        kind: One of `KINDS`.
        optional: Whether `None` is a value.
        default: Used where a search space does not mention it.
        low, high: Inclusive bounds of numbers; `None` leaves a side open.
        above: Exclusive lower bound, for numbers that must be positive.
        choices: The accepted names of a `str`.
        static: Changes a tensor's shape or the graph, so that it splits packs.
        doc: One line for the user, with the unit.
    """

    name: str
    kind: type
    optional: bool
    default: Value
    low: float | None
    high: float | None
    above: float | None
    choices: tuple[str, ...] | None
    static: bool
    doc: str

    def expected(self) -> str:
        """What is accepted, in words."""
        if self.choices is not None:
            words = "one of " + ", ".join(self.choices)
        elif self.kind is bool:
            words = "true or false"
        else:
            noun = {float: "a finite number", int: "a whole number", str: "a name"}[self.kind]
            high = _LARGEST if self.high is None and self.kind is int else self.high
            bounds = [
                f"> {self.above:g}" if self.above is not None else "",
                f">= {self.low:g}" if self.low is not None else "",
                f"<= {high:g}" if high is not None else "",
            ]
            words = " ".join([noun, " and ".join(bound for bound in bounds if bound)]).strip()
        return f"{words}, or null" if self.optional else words

    def accept(self, value: object) -> Value:
        """Returns `value` in the declared type.

        Raises:
            SpecError: If it is of another type or out of range.
        """
        if value is None and self.optional:
            return None
        number = value
        if self.kind is float and type(value) is int and abs(value) <= sys.float_info.max:
            number = float(value)
        if type(number) is not self.kind or not self._inside(number):
            raise SpecError(self.name, given=value, expected=self.expected(), mend=f"it is: {self.doc}")
        return typing.cast(Value, number)

    def _inside(self, value: object) -> bool:
        if self.choices is not None:
            return value in self.choices
        if not isinstance(value, int | float) or isinstance(value, bool):
            return True
        return (
            (_SMALLEST <= value <= _LARGEST if isinstance(value, int) else math.isfinite(value))
            and (self.above is None or value > self.above)
            and (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
        )


def parameter(
    default: Value,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] | None = None,
    static: bool = False,
) -> Any:
    """Declares a field of a `TrainingParameters` class. See `Parameter` for the arguments."""
    declared = {"low": low, "high": high, "above": above, "choices": choices, "static": static, "doc": doc}
    return dataclasses.field(default=default, metadata={"parameter": declared})


@dataclass(frozen=True, kw_only=True)
class TrainingParameters:
    """What every training has, whatever its workload. Workloads subclass it and add their own.

    A subclass checks what one field cannot know of another in `__post_init__`, with a `SpecError`.
    """

    init_sigma: float | None = parameter(
        0.1, "standard deviation of the Gaussian initialization; null = the framework's default", low=0.0
    )
    optimizer: str = parameter("sgd", "update rule", choices=("sgd", "adam", "adamw", "lbfgs"), static=True)
    learning_rate: float = parameter(
        1e-2, "step size of the optimizer; for lbfgs, where line searches begin: set 1, PyTorch's default", above=0.0
    )
    learning_rate_schedule: str = parameter(
        "constant",
        "the learning rate after warm-up: constant, or a cosine to 0 at n_steps; not for lbfgs",
        choices=("constant", "cosine"),
        static=True,
    )
    warmup_steps: int = parameter(0, "steps over which the learning rate rises linearly; not for lbfgs", low=0)
    momentum: float = parameter(0.0, "share of the last update kept, sgd only", low=0.0, high=1.0)
    weight_decay: float = parameter(
        0.0, "pull towards 0: on the gradient for sgd and adam, decoupled for adamw; not for lbfgs", low=0.0
    )
    gradient_clip_norm: float | None = parameter(
        None, "largest gradient norm, longer gradients are shortened to it; null = none; not for lbfgs", above=0.0
    )
    n_steps: int = parameter(
        2000,
        "optimizer steps; for lbfgs, iterations, of which some take several evaluations",
        low=1,
        high=2**31 - 1,
        static=True,
    )
    dtype: str = parameter(
        "float64", "floating-point type of the training", choices=("float32", "float64"), static=True
    )

    certified_share: float = parameter(
        0.05, "share of the stuck trainings whose label is put to a test after training", low=0.0, high=1.0
    )
    stop_when_solved: bool = parameter(
        True, "end a training at the first probe that finds it solved, instead of at n_steps", static=True
    )

    variant_field: ClassVar[str | None] = None
    """The parameter that the ledger's `variant` column repeats."""

    @classmethod
    def declared(cls) -> dict[str, Parameter]:
        """The declared parameters by name, in order of declaration."""
        return dict(_declared(cls))  # type: ignore[arg-type]  # a class is hashable

    @classmethod
    def resolve(cls, values: Mapping[str, object]) -> Self:
        """Builds the parameters of one training from plain values; what is not given takes its default.

        Raises:
            SpecError: For an unknown name, a wrong type, a value out of range, or values that clash.
        """
        declared = cls.declared()
        for name, value in values.items():
            if name not in declared:
                raise unknown_parameter(name, value, declared)
        accepted: dict[str, Any] = {name: declared[name].accept(value) for name, value in values.items()}
        try:
            return cls(**accepted)
        except UserError:
            raise
        except Exception as error:  # The author's own check, whatever it raises, refuses these values.
            raise SpecError(
                cls.__name__, given=accepted, expected="values that go together", mend=f"it says: {in_words(error)}"
            ) from error

    @classmethod
    def pinned(cls, values: Mapping[str, Value]) -> dict[str, Value]:
        """What a sweep writes down of files that its fixed values name: where they are and what is in them.

        Args:
            values: The sweep's fixed values, by name.

        Raises:
            UserError: If a file is not there, or holds something else than was written down.
        """
        del values
        return {}

    def values(self) -> dict[str, Value]:
        """All parameters by name."""
        return {name: getattr(self, name) for name in self.declared()}

    def static_key(self) -> tuple[Value, ...]:
        """Equal for two trainings if and only if they may share a pack."""
        return tuple(getattr(self, name) for name, declared in self.declared().items() if declared.static)


@functools.cache
def _declared(parameters: type[TrainingParameters]) -> Mapping[str, Parameter]:
    hints = typing.get_type_hints(parameters)
    return {
        field.name: Parameter(
            name=field.name,
            kind=next(kind for kind in _members(hints[field.name]) if kind is not NoneType),
            optional=NoneType in _members(hints[field.name]),
            default=typing.cast(Value, field.default),
            **field.metadata["parameter"],
        )
        for field in dataclasses.fields(parameters)
    }


def unknown_parameter(name: str, value: object, declared: Mapping[str, Parameter]) -> SpecError:
    """The error for a name that the workload does not declare."""
    close = difflib.get_close_matches(name, declared, n=1)
    return SpecError(
        name,
        given=value,
        expected="a parameter of the workload (" + ", ".join(declared) + ")",
        mend=f"did you mean {close[0]}?" if close else "remove it, or correct its name",
    )


def _members(hint: object) -> tuple[type, ...]:
    return typing.get_args(hint) or (typing.cast(type, hint),)
