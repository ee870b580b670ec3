"""The base class of a workload's parameters: a frozen dataclass whose fields declare type, range, default and meaning.
Search spaces are validated against it; it types the ledger's columns `param_<name>`, and decides which trainings may
share a pack."""

import dataclasses
import functools
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, ClassVar, Self

from attnsweep.workloads.declaration import KINDS as KINDS
from attnsweep.workloads.declaration import Parameter as Parameter
from attnsweep.workloads.declaration import Value as Value
from attnsweep.workloads.declaration import parameter as parameter
from attnsweep.workloads.errors import SpecError, UserError, did_you_mean, in_words
from attnsweep.workloads.interventions import check_interventions, interventions_of
from attnsweep.workloads.update_rules import READERS, Hyperparameters

CERTIFIED_SHARE = 0.05

ONLY_WITH: Mapping[str, tuple[str, frozenset[str]]] = {
    **{name: ("optimizer", optimizers) for name, optimizers in READERS.items()},
    "float32_state": ("dtype", frozenset({"bfloat16"})),
}
"""Parameters that have an effect only with some values of another one: its name, and these values."""


def _check_condition(text: str) -> None:
    # `conditions` imports NumPy, which commands that train nothing do without.
    from attnsweep.workloads.conditions import terms_of

    terms_of(text)


@dataclass(frozen=True, kw_only=True)
class _Start:
    init_sigma: float | None = parameter(
        0.1, "standard deviation of the Gaussian initialization; null = the framework's default", low=0.0
    )


@dataclass(frozen=True, kw_only=True)
class TrainingParameters(Hyperparameters, _Start):  # fields of `_Start`, the last base class, come first
    """The parameters of every training. A subclass declares more, and checks combinations in `__post_init__`."""

    n_steps: int = parameter(2000, "optimizer steps; for lbfgs, iterations", low=1, high=2**31 - 1, static=True)
    dtype: str = parameter(
        "float64",
        "floating-point type of the training; in bfloat16 probes still measure in float32",
        choices=("bfloat16", "float32", "float64"),
        static=True,
    )
    float32_state: bool = parameter(False, "bfloat16: compute only the loss in it, the rest in float32", static=True)
    stop_when_solved: bool = parameter(True, "end a training at the first probe that finds it solved", static=True)
    stop_when: str | None = parameter(
        None,
        'end a training at the first probe where metrics meet a condition, such as "eval_loss <= 0.01"; null = none',
        check=_check_condition,
        static=True,
    )
    intervention: str | None = parameter(
        None,
        'what is done to a training while it runs, such as "kick 0.1 at 300"; null = nothing',
        check=interventions_of,
    )

    variant_field: ClassVar[str | None] = None
    """The parameter whose value the ledger's column `variant` repeats."""

    @classmethod
    def declared(cls) -> dict[str, Parameter]:
        return dict(_fields_of(cls))  # type: ignore[arg-type]  # a class is hashable

    @classmethod
    def resolve(cls, values: Mapping[str, object]) -> Self:
        """From plain values, with defaults for the rest; refused if one of them, or their combination, is."""
        known = cls.declared()
        for name, value in values.items():
            if name not in known:
                raise unknown_parameter(name, value, cls)
        accepted: dict[str, Any] = {name: known[name].accept(value) for name, value in values.items()}
        try:
            parameters = cls(**accepted)
            check_interventions(parameters.intervention, parameters.n_steps, parameters.optimizer)
            return parameters
        except UserError:
            raise
        # Whatever a workload's own `__post_init__` raises, it refuses these values.
        except Exception as error:
            expected = "values that are allowed in combination"
            fix = f"change the values; the workload's check raises {in_words(error)}"
            raise SpecError(cls.__name__, given=accepted, expected=expected, fix=fix) from error

    @classmethod
    def recorded(cls, columns: Mapping[str, Any]) -> Self:
        """From the columns `param_<name>` of a row of the ledger, with defaults for the rest."""
        known = cls.declared()
        stored = {name: columns[f"param_{name}"] for name in known if f"param_{name}" in columns}
        return cls.resolve({name: value for name, value in stored.items() if value is not None or known[name].optional})

    @classmethod
    def pinned(cls, values: Mapping[str, Value]) -> dict[str, Value]:
        """What a sweep records about files that its parameters name: absolute paths and digests."""
        del values
        return {}

    def values(self) -> dict[str, Value]:
        return {name: getattr(self, name) for name in self.declared()}

    def effective(self) -> dict[str, Value]:
        """What the ledger records: `None` for a value that another one leaves without effect."""
        return {
            name: None if name in ONLY_WITH and getattr(self, ONLY_WITH[name][0]) not in ONLY_WITH[name][1] else value
            for name, value in self.values().items()
        }

    def refused(self, name: str, expected: str, fix: str) -> SpecError:
        """For a value that does not fit those of other parameters."""
        return SpecError(name, given=getattr(self, name), expected=expected, fix=fix)

    def static_key(self) -> tuple[Value, ...]:
        """The values that trainings of a pack have in common."""
        return tuple(getattr(self, name) for name in _static_names(type(self)))  # type: ignore[arg-type]  # as above


def with_default(name: str, default: Value, **changed: Any) -> Any:
    """Declares a parameter of every training again, with another default."""
    declared = TrainingParameters.__dataclass_fields__[name].metadata["parameter"] | {"default": default} | changed
    return dataclasses.field(default=default, metadata={"parameter": declared})


@functools.cache
def _fields_of(parameters: type[TrainingParameters]) -> Mapping[str, Parameter]:
    hints = typing.get_type_hints(parameters)
    return {
        field.name: Parameter(
            name=field.name,
            kind=next(kind for kind in _members(hints[field.name]) if kind is not NoneType),
            optional=NoneType in _members(hints[field.name]),
            **field.metadata["parameter"],
        )
        for field in dataclasses.fields(parameters)
    }


@functools.cache
def _static_names(parameters: type[TrainingParameters]) -> tuple[str, ...]:
    return tuple(name for name, declared in parameters.declared().items() if declared.static)


def unknown_parameter(name: str, value: object, parameters: type[TrainingParameters]) -> SpecError:
    declared = parameters.declared()
    fix = did_you_mean(name, declared, otherwise="remove it, or correct its name")
    return SpecError(name, given=value, expected="a parameter of the workload (" + ", ".join(declared) + ")", fix=fix)


def _members(hint: object) -> tuple[type, ...]:
    return typing.get_args(hint) or (typing.cast(type, hint),)
