"""The spec of a sweep: one experiment, frozen. It is written as JSON and read back without loss."""

import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, Strict, TypeAdapter, ValidationError, model_validator

from attnsweep.search_spaces.constraints import Constraint, read_constraints
from attnsweep.search_spaces.dimensions import (
    Categorical,
    Conditional,
    Dimension,
    Float,
    Int,
    Scalar,
    Varied,
    Zip,
)
from attnsweep.search_spaces.measured import Measured, Objective, StuckRate
from attnsweep.search_spaces.model import SpecModel, first_mistake
from attnsweep.search_spaces.pruners import Pruner
from attnsweep.search_spaces.replication import Replicates, most_wanted
from attnsweep.search_spaces.yaml_text import yaml_text
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import CERTIFIED_SHARE

Sampler: TypeAlias = Literal["tpe", "random", "qmc", "grid", "cmaes", "boundary", "nsga2"]
LEARN_NOTHING: frozenset[Sampler] = frozenset({"random", "qmc", "grid"})
"""The samplers whose draws do not depend on how earlier trials ended."""
SEVERAL_GOALS: tuple[Sampler, ...] = ("tpe", "nsga2", "random", "qmc", "grid")
"""The samplers that take several objectives, and constraints."""

_TRAININGS_WITH_ALL_PROBES = 250_000
"""Of system P their curves take 600 MB."""

SWEEP_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$"


def _named(space: object) -> object:
    """The space with its parameters read one by one, so that a mistake in one names it."""
    if not isinstance(space, Mapping):
        return space
    return {name: _dimension(name, given) for name, given in space.items()}


def _dimension(name: object, given: object) -> object:
    if not isinstance(given, Mapping):
        return given
    try:
        return _DIMENSION.validate_python(given)
    except SpecError as error:
        subject = f"space.{name}.{error.subject}"
        raise SpecError(subject, given=error.given, expected=error.expected, fix=error.fix) from None
    except ValidationError:
        # It names the parameter by itself.
        return given


_DIMENSION: TypeAdapter[Dimension] = TypeAdapter(Dimension)


class Sweep(SpecModel):
    """One experiment: workload, search space, sampler, budget, replicates and seed.

    Attributes:
        name: Letters, digits, `_`, `.` and `-`: it names directories and MLflow runs.
        workload: A registered name, `module:Class`, or `path/to/file.py:Class`.
        space: How parameters vary, by name; a bare value is fixed. Other parameters have the workload's default. The
            name of a `Zip` is those of its parameters, separated by commas.
        sampler: The sampler that chooses the configurations: docs/sampling.md.
        trials: The most configurations to train.
        seconds: Wall time after which no further trial is started.
        replicates: Seeded trainings of each trial: a number, or a `Sequential` rule.
        seed: Seeds the sampler and all trainings.
        objective: The value that the sampler is told for each trial, or several: docs/sampling.md.
        constraints: What a trial must meet to count as good, such as `stuck_rate <= 0.1`: docs/sampling.md.
        certified_share: Share of the stuck trainings whose label is tested: docs/outcomes.md.
        pruner: Ends trials early that fall behind: docs/pruning.md; `None` for none.
        prune_anyway: Prune although the objective is the stuck rate, which pruning biases.
        curves_every: Of each curve one probe in so many is kept, with the first and the last; `None` keeps all of up to
            250,000 trainings, one in 2 of up to 500,000, and so on. `replay` computes all of them again.
        storage: An Optuna storage URL instead of the sweep directory's journal; for SQLite with an absolute path.
        description: One line for `attnsweep specs` and MLflow.
    """

    name: str = Field(pattern=SWEEP_NAME)
    workload: str
    space: Annotated[Mapping[str, Dimension], BeforeValidator(_named)]
    sampler: Sampler = "tpe"
    trials: int = Field(ge=1, le=2**31 - 1)
    seconds: float | None = Field(default=None, gt=0)
    replicates: Replicates = 1
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    objective: Objective = StuckRate()
    constraints: Annotated[
        tuple[str, ...], Strict(False), BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
    ] = Field(default=(), exclude_if=lambda texts: not texts)
    # Left out of the JSON at its default, so that specs of earlier versions keep their sha256.
    certified_share: float = Field(
        default=CERTIFIED_SHARE, ge=0.0, le=1.0, exclude_if=lambda share: share == CERTIFIED_SHARE
    )
    pruner: Pruner | None = Field(default=None, exclude_if=lambda pruner: pruner is None)
    prune_anyway: bool = Field(default=False, exclude_if=lambda anyway: not anyway)
    curves_every: int | None = Field(default=None, ge=1, exclude_if=lambda every: every is None)
    storage: str | None = None
    description: str = ""

    @model_validator(mode="after")
    def _check_goals(self) -> Self:
        labels = [each.label for each in self.objectives]
        for at, label in enumerate(labels):
            if label in labels[:at]:
                raise SpecError("objective", given=f"{label} twice", expected="each once", fix="remove one of the two")
        read_constraints(self.constraints)
        return self

    @model_validator(mode="after")
    def _check_zips(self) -> Self:
        names = [name for key, each in self.space.items() for name in _names(key, each)]
        for key, each in self.space.items():
            if isinstance(each, Zip):
                _check_zip(key, each, names)
        return self

    @property
    def objectives(self) -> tuple[Measured, ...]:
        """The objective, or the several ones."""
        return self.objective if isinstance(self.objective, tuple) else (self.objective,)

    @property
    def bounds(self) -> tuple[Constraint, ...]:
        """What the constraints say."""
        return read_constraints(self.constraints)

    def __repr__(self) -> str:
        """One line; all of it is in `to_yaml`."""
        n_swept = len(self.varied()) + len(self.conditional())
        seeds = self.replicates if isinstance(self.replicates, int) else f"up to {self.replicates.at_most}"
        return f"<Sweep {self.name}: {self.workload}, {n_swept} parameters swept, {self.trials} trials x {seeds} seeds>"

    def _repr_html_(self) -> str:
        """The YAML, for a notebook."""
        return f"<pre>{html.escape(self.to_yaml())}</pre>"

    def to_json(self) -> str:
        """The spec as JSON text, the space in its order: samplers draw the parameters one after the other."""
        return _text(self.model_dump(mode="json"))

    def to_yaml(self) -> str:
        """The spec as YAML 1.2: a file that `attnsweep run` takes. What it does not say has its default."""
        return yaml_text(_said(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` wrote.

        Raises:
            SpecError: If the text is not JSON, or not a sweep.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise first_mistake(error) from None

    def sha256(self) -> str:
        """Identifies the spec's content, whatever the order of the space.

        That order decides what a sampler draws. A sweep directory keeps it, so its own trials never depend on the order
        in which the same sweep is given again.
        """
        return sha256_of(self.model_dump(mode="json"))

    def fixed(self) -> dict[str, Scalar]:
        """The parameters that are the same in all trials."""
        return {name: each for name, each in self.space.items() if isinstance(each, bool | int | float | str | None)}

    def one_probe_in(self) -> int:
        """Of how many probes of a curve one is kept, beside the first and the last."""
        return self.curves_every or -(-self.trials * most_wanted(self.replicates) // _TRAININGS_WITH_ALL_PROBES)

    def parameters(self) -> dict[str, Dimension]:
        """How each parameter varies, by its own name: one of a `Zip` as a choice among its values there."""
        found: dict[str, Dimension] = {}
        for name, each in self.space.items():
            if isinstance(each, Zip):
                columns = zip(zipped_names(name), zip(*each.rows, strict=True), strict=True)
                found |= {of: Categorical(tuple(dict.fromkeys(column))) for of, column in columns}
            else:
                found[name] = each
        return found

    def varied(self) -> dict[str, Varied]:
        """The parameters that vary without looking at another, alone or together."""
        return {name: each for name, each in self.parameters().items() if isinstance(each, Categorical | Float | Int)}

    def drawn(self) -> dict[str, Varied]:
        """What a sampler draws without looking at another: parameters, and one choice for each `Zip`, by its name."""
        drawn = {name: each.drawn() if isinstance(each, Zip) else each for name, each in self.space.items()}
        return {name: each for name, each in drawn.items() if isinstance(each, Categorical | Float | Int)}

    def unzipped(self, drawn: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """What was drawn, with the parameters of each `Zip` by their own names."""
        values: dict[str, Scalar] = {}
        for name, value in drawn.items():
            if isinstance(self.space.get(name), Zip):
                values |= zip(zipped_names(name), Zip.row(str(value)), strict=True)
            else:
                values[name] = value
        return values

    def conditional(self) -> dict[str, Conditional]:
        """The parameters whose variation depends on another."""
        return {name: each for name, each in self.space.items() if isinstance(each, Conditional)}

    def fix(self, values: Mapping[str, Scalar]) -> Self:
        """The same sweep with these parameters fixed."""
        return self.but(space={**self.space, **values})

    def but(self, **changes: object) -> Self:
        """The same sweep with some fields changed, validated again."""
        return type(self)(**{name: getattr(self, name) for name in type(self).model_fields} | changes)


def zipped_names(name: str) -> list[str]:
    """The parameters that the name of a `Zip` in a space names."""
    return [each.strip() for each in name.split(",")]


def _names(key: str, dimension: Dimension) -> list[str]:
    return zipped_names(key) if isinstance(dimension, Zip) else [key]


def _check_zip(key: str, zipped: Zip, names: Sequence[str]) -> None:
    """Checks that each row has a value for each parameter, and that none of them has another place in the space."""
    own = zipped_names(key)
    if len(own) < 2:
        fix = f'write "{key}, OTHER": Zip(...), or "{key}": Categorical(...)'
        raise SpecError(f"space.{key}", given="a Zip", expected="the names of two or more parameters", fix=fix)
    for name in own:
        if names.count(name) > 1:
            fix = "leave it out of one of them"
            raise SpecError(name, given=f"a place in the Zip of {key}, and another", expected="one place", fix=fix)
    for at, row in enumerate(zipped.rows):
        if len(row) != len(own):
            expected = f"{len(own)} values, for {', '.join(own)}"
            raise SpecError(f"space.{key}.rows", given=list(row), expected=expected, fix="give one for each")
        if row in zipped.rows[:at]:
            raise SpecError(f"space.{key}.rows", given=list(row), expected="each row once", fix="remove one of the two")


def sha256_of(spec: object) -> str:
    """Identifies the content of a spec, given as plain JSON values."""
    return hashlib.sha256(_text(spec, sort_keys=True).encode()).hexdigest()


def _said(part: SpecModel) -> dict[str, object]:
    """A part of a spec as plain values, without what has its default."""
    return {
        name: _plain(value)
        for name, field in type(part).model_fields.items()
        if (value := getattr(part, name)) != field.default or name == "kind"
    }


def _plain(value: object) -> object:
    if isinstance(value, SpecModel):
        return _said(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return {name: _plain(each) for name, each in value.items()} if isinstance(value, Mapping) else value


def _text(spec: object, *, sort_keys: bool = False) -> str:
    return json.dumps(spec, sort_keys=sort_keys, indent=2, allow_nan=False)
