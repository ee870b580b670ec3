"""The pruners that a sweep can name, which end bad trials early: all of Optuna's pruners that compare values at steps.

Each class has the name and the arguments of Optuna's pruner, and Optuna's documentation describes them. A pruner's step
is a step of the optimizer. Values are compared at probes, the steps at which trainings are measured.
"""

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Discriminator

from attnsweep.search_spaces.model import SpecModel
from attnsweep.workloads.errors import SpecError, did_you_mean

if TYPE_CHECKING:
    from optuna.pruners import BasePruner


class MedianPruner(SpecModel):
    """Prunes a trial if its best value so far is worse than the median of the completed trials at the same step."""

    kind: Literal["median"] = "median"
    n_startup_trials: int = 5
    n_warmup_steps: int = 0
    interval_steps: int = 1
    n_min_trials: int = 1


class PercentilePruner(SpecModel):
    """Prunes a trial if its best value so far is not among the best `percentile` percent of all trials at the same
    step."""

    kind: Literal["percentile"] = "percentile"
    percentile: float
    n_startup_trials: int = 5
    n_warmup_steps: int = 0
    interval_steps: int = 1
    n_min_trials: int = 1


class SuccessiveHalvingPruner(SpecModel):
    """Asynchronous successive halving (ASHA): at each of several steps ("rungs"), one in `reduction_factor` trials
    continues."""

    kind: Literal["successive_halving"] = "successive_halving"
    min_resource: int | Literal["auto"] = "auto"
    reduction_factor: int = 4
    min_early_stopping_rate: int = 0
    bootstrap_count: int = 0


class HyperbandPruner(SpecModel):
    """Hyperband: several instances of successive halving side by side, which begin to prune at different steps."""

    kind: Literal["hyperband"] = "hyperband"
    min_resource: int = 1
    max_resource: int | Literal["auto"] = "auto"
    reduction_factor: int = 3
    bootstrap_count: int = 0


class ThresholdPruner(SpecModel):
    """Prunes a trial whose value leaves a given range."""

    kind: Literal["threshold"] = "threshold"
    lower: float | None = None
    upper: float | None = None
    n_warmup_steps: int = 0
    interval_steps: int = 1


class PatientPruner(SpecModel):
    """Prunes a trial if its value has not improved for `patience` probes and the wrapped pruner
    agrees."""

    kind: Literal["patient"] = "patient"
    wrapped_pruner: "Pruner | None" = None
    patience: int
    min_delta: float = 0.0


_KINDS: Mapping[str, type[SpecModel]] = {
    "median": MedianPruner,
    "percentile": PercentilePruner,
    "hyperband": HyperbandPruner,
    "successive_halving": SuccessiveHalvingPruner,
    "threshold": ThresholdPruner,
    "patient": PatientPruner,
}


def _read(given: object) -> object:
    """Converts a pruner's name, or a mapping with its class and arguments, to a pruner. Runs before validation."""
    if given is None or type(given) in _KINDS.values():
        return given
    arguments = dict(given) if isinstance(given, Mapping) else {"kind": given}
    kind = arguments.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        kinds = ", ".join(_KINDS)
        expected = f"a pruner of attnsweep, or the name of a pruner: {kinds}"
        fix = did_you_mean(str(kind), _KINDS, otherwise='write pruner="median", or see docs/pruning.md')
        raise SpecError("pruner", given=kind if isinstance(kind, str) else given, expected=expected, fix=fix)
    return _KINDS[kind].model_validate(arguments)


Pruner: TypeAlias = Annotated[
    MedianPruner | PercentilePruner | HyperbandPruner | SuccessiveHalvingPruner | ThresholdPruner | PatientPruner,
    Discriminator("kind"),
    BeforeValidator(_read),
]
"""Any of the pruners of this module: a rule by which trials are ended early."""

PatientPruner.model_rebuild()


def make_pruner(pruner: Pruner) -> "BasePruner":
    """Optuna's. Raises a `SpecError` if Optuna refuses the arguments."""
    import optuna

    arguments = {name: getattr(pruner, name) for name in type(pruner).model_fields if name != "kind"}
    if isinstance(pruner, PatientPruner) and pruner.wrapped_pruner is not None:
        arguments["wrapped_pruner"] = make_pruner(pruner.wrapped_pruner)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            optuna_pruner: BasePruner = getattr(optuna.pruners, type(pruner).__name__)(**arguments)
    except (TypeError, ValueError) as error:
        given = ", ".join(f"{name}={value}" for name, value in arguments.items())
        expected = "arguments that Optuna accepts"
        fix = f"correct the pruner's arguments ({error})"
        raise SpecError(f"pruner.{pruner.kind}", given=given, expected=expected, fix=fix) from error
    return optuna_pruner
