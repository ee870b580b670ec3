"""Optuna's pruners that compare values at steps, which are the optimizer's steps at probes."""

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from pydantic import BeforeValidator, ConfigDict, model_validator

from attnsweep.search_spaces.dimensions import Positional
from attnsweep.workloads.errors import SpecError

if TYPE_CHECKING:
    from optuna.pruners import BasePruner

Kind: TypeAlias = Literal["median", "percentile", "hyperband", "successive_halving", "threshold", "patient"]


class Pruner(Positional):
    """Ends trials early that fall behind: `Pruner("median", n_startup_trials=3)`, with the arguments of Optuna's pruner
    of this name. `patient` wraps another: `Pruner("patient", patience=3, wrapped_pruner={"kind": "median"})`.
    """

    model_config = ConfigDict(extra="allow")
    positional = ("kind",)

    kind: Kind

    if TYPE_CHECKING:

        def __init__(self, kind: Kind, **arguments: Any) -> None: ...

    @model_validator(mode="after")
    def _is_accepted(self) -> Self:
        make_pruner(self)
        return self


def _read(given: object) -> object:
    if isinstance(given, str):
        return Pruner.model_validate({"kind": given})
    if not isinstance(given, Pruner | Mapping | None):
        fix = 'write for example Pruner("median")'
        raise SpecError("pruner", given=given, expected="the name of a pruner, or a Pruner", fix=fix)
    return given


PrunerField: TypeAlias = Annotated[Pruner, BeforeValidator(_read)]


def make_pruner(pruner: Pruner) -> "BasePruner":
    import optuna

    arguments = dict(pruner.model_extra or {})
    if isinstance(wrapped := arguments.get("wrapped_pruner"), Mapping):
        arguments["wrapped_pruner"] = make_pruner(Pruner.model_validate(wrapped))
    elif pruner.kind == "patient":
        arguments.setdefault("wrapped_pruner", None)
    make = getattr(optuna.pruners, f"{pruner.kind.title().replace('_', '')}Pruner")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            made: BasePruner = make(**arguments)
    except (TypeError, ValueError) as error:
        given = ", ".join(f"{name}={value}" for name, value in arguments.items())
        expected, fix = "arguments that Optuna accepts", f"correct the pruner's arguments ({error})"
        raise SpecError(f"pruner.{pruner.kind}", given=given, expected=expected, fix=fix) from error
    return made
