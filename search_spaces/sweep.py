"""The description of a sweep: immutable, written as JSON and read back without loss."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, Strict, TypeAdapter, ValidationError, model_validator

from attnsweep.search_spaces.dimensions import Categorical, Conditional, Derived, Dimension, Scalar, Varied, Zip
from attnsweep.search_spaces.formulas import evaluated, names_in
from attnsweep.search_spaces.measured import Constraint, Measured, Objective, StuckRate, read_constraints
from attnsweep.search_spaces.model import SpecModel, first_mistake
from attnsweep.search_spaces.pruners import PrunerField
from attnsweep.search_spaces.replication import Replicates, max_replicates
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import CERTIFIED_SHARE

Sampler: TypeAlias = Literal["tpe", "random", "qmc", "grid", "boundary", "nsga2"]
LEARN_NOTHING: frozenset[Sampler] = frozenset({"random", "qmc", "grid"})
"""The samplers whose draws do not depend on how earlier trials ended."""
SEVERAL_GOALS: tuple[Sampler, ...] = ("tpe", "nsga2", "random", "qmc", "grid")
"""Those that support several objectives and constraints."""
_TRAININGS_WITH_ALL_PROBES = 250_000
"""Curves of a larger sweep do not keep every probe by default."""

SWEEP_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$"

Texts: TypeAlias = Annotated[
    tuple[str, ...], Strict(False), BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
]


def _named(space: object) -> object:
    """One parameter at a time, so that an error names it."""
    return {name: _dimension(name, given) for name, given in space.items()} if isinstance(space, Mapping) else space


def _dimension(name: object, given: object) -> object:
    if not isinstance(given, Mapping):
        return given
    try:
        return _DIMENSION.validate_python(given)
    except SpecError as error:
        subject = f"space.{name}.{error.subject}"
        raise SpecError(subject, given=error.given, expected=error.expected, fix=error.fix) from None
    except ValidationError:
        return given  # Pydantic will refuse it with an error that names the parameter.


_DIMENSION: TypeAdapter[Dimension] = TypeAdapter(Dimension)


class Sweep(SpecModel):
    """One experiment, from which all its trainings follow.

    Attributes:
        name: Begins the names of directories and MLflow runs: letters, digits, `_`, `.` and `-`.
        workload: A registered name, `module:Class`, or `path/to/file.py:Class`.
        space: How parameters vary, by name; a bare value is fixed, others have the workload's default. The name of a
            `Zip` is those of its parameters, separated by commas.
        where: What every trial must meet, such as `d_model % n_heads == 0`.
        seconds: Wall time after which no further trial is started.
        target: No further trial is started once one meets this, such as `solved_rate >= 0.95`.
        patience: No further trial is started once this many in a row are no better than one before them.
        objective: What is reported to the sampler for each trial: docs/sweeps.md.
        constraints: What a trial must meet to count as good, such as `stuck_rate <= 0.1`.
        certified_share: Share of the stuck trainings whose label is tested: docs/outcomes.md.
        prune_anyway: Allows a pruner although the objective is a rate, which pruning biases.
        curves_every: Keep one in this many probes of each curve; `None` for every probe in sweeps of up to 250,000
            trainings, one in 2 of up to 500,000, and so on.
        storage: An Optuna storage URL instead of the sweep directory's journal; for SQLite with an absolute path.
    """

    name: str = Field(pattern=SWEEP_NAME)
    workload: str
    space: Annotated[Mapping[str, Dimension], BeforeValidator(_named)]
    where: Texts = Field(default=(), exclude_if=lambda formulas: not formulas)
    sampler: Sampler = "tpe"
    trials: int = Field(ge=1, le=2**31 - 1)
    seconds: float | None = Field(default=None, gt=0)
    target: str | None = Field(default=None, exclude_if=lambda target: target is None)
    patience: int | None = Field(default=None, ge=1, exclude_if=lambda patience: patience is None)
    replicates: Replicates = 1
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    objective: Objective = StuckRate()
    constraints: Texts = Field(default=(), exclude_if=lambda texts: not texts)
    certified_share: float = Field(
        default=CERTIFIED_SHARE, ge=0.0, le=1.0, exclude_if=lambda share: share == CERTIFIED_SHARE
    )
    pruner: PrunerField | None = Field(default=None, exclude_if=lambda pruner: pruner is None)
    prune_anyway: bool = Field(default=False, exclude_if=lambda anyway: not anyway)
    curves_every: int | None = Field(default=None, ge=1, exclude_if=lambda every: every is None)
    storage: str | None = None
    description: str = ""

    @model_validator(mode="after")
    def _check_goals(self) -> Self:
        read_constraints(self.constraints)
        read_constraints(self.targets, "target")
        if self.patience is not None and len(self.objectives) > 1:
            expected, fix = "a single objective, by which trials are better or worse", "name one, or write a target"
            raise SpecError("patience", given=self.patience, expected=expected, fix=fix)
        return self

    @model_validator(mode="after")
    def _check_zips(self) -> Self:
        names = [name for key in self.space for name in zipped_names(key)]
        for key, zipped in self.space.items():
            if isinstance(zipped, Zip):
                _check_zip(key, zipped, names)
        return self

    @model_validator(mode="after")
    def _check_formulas(self) -> Self:
        always = {
            name
            for name, dimension in self.parameters().items()
            if not isinstance(dimension, Conditional) or dimension.otherwise is not None
        }
        formulas = [
            (f"space.{name}.formula", each.formula, always - {*self.derived()}) for name, each in self.derived().items()
        ]
        for subject, formula, known in [*formulas, *(("where", formula, always) for formula in self.where)]:
            for name in sorted(names_in(formula, subject) - known):
                expected = f"a formula of parameters that the space gives every trial: {', '.join(sorted(known))}"
                fix = f"give {name} a value in every trial, without Derived"
                raise SpecError(subject, given=formula, expected=expected, fix=fix)
        return self

    @property
    def objectives(self) -> tuple[Measured, ...]:
        return self.objective if isinstance(self.objective, tuple) else (self.objective,)

    @property
    def bounds(self) -> tuple[Constraint, ...]:
        return read_constraints(self.constraints)

    @property
    def targets(self) -> tuple[str, ...]:
        return () if self.target is None else (self.target,)

    @property
    def ends_early(self) -> bool:
        return self.target is not None or self.patience is not None

    def to_json(self) -> str:
        """Keeps the order of the space, in which samplers draw."""
        return _text(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote. Raises a `SpecError`."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise first_mistake(error) from None

    def sha256(self) -> str:
        """Of the content, whatever the order of the parameters."""
        return sha256_of(self.model_dump(mode="json"))

    def fixed(self) -> dict[str, Scalar]:
        return {name: value for name, value in self.space.items() if isinstance(value, bool | int | float | str | None)}

    def one_probe_in(self) -> int:
        """n, where stored curves hold every n-th probe besides the first and the last."""
        return self.curves_every or -(-self.trials * max_replicates(self.replicates) // _TRAININGS_WITH_ALL_PROBES)

    def parameters(self) -> dict[str, Dimension]:
        """How each parameter varies; those of a `Zip` have the values in its rows as choices."""
        dimensions: dict[str, Dimension] = {}
        for name, dimension in self.space.items():
            if isinstance(dimension, Zip):
                columns = zip(zipped_names(name), zip(*dimension.rows, strict=True), strict=True)
                dimensions |= {parameter: Categorical(tuple(dict.fromkeys(column))) for parameter, column in columns}
            else:
                dimensions[name] = dimension
        return dimensions

    def varied(self) -> dict[str, Varied]:
        """Parameters that vary and depend on no other; those of a `Zip` one by one."""
        return {name: dimension for name, dimension in self.parameters().items() if isinstance(dimension, Varied)}

    def drawn(self) -> dict[str, Varied]:
        """What a sampler draws in every trial; a `Zip` is one choice of a row."""
        drawn = {
            name: dimension.drawn() if isinstance(dimension, Zip) else dimension
            for name, dimension in self.space.items()
        }
        return {name: dimension for name, dimension in drawn.items() if isinstance(dimension, Varied)}

    def grid(self) -> dict[str, list[Scalar]]:
        """All values of each parameter; the rows of a `Zip` are one list."""
        return {name: dimension.grid() for name, dimension in self.drawn().items()}

    def unzipped(self, drawn: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """With the row of a `Zip` replaced by its parameters' values."""
        values: dict[str, Scalar] = {}
        for name, value in drawn.items():
            if isinstance(self.space.get(name), Zip):
                values |= zip(zipped_names(name), json.loads(str(value)), strict=True)
            else:
                values[name] = value
        return values

    def conditional(self) -> dict[str, Conditional]:
        return {name: dimension for name, dimension in self.space.items() if isinstance(dimension, Conditional)}

    def derived(self) -> dict[str, Derived]:
        return {name: dimension for name, dimension in self.space.items() if isinstance(dimension, Derived)}

    def completed(self, values: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """With derived parameters. Raises a `SpecError` if a formula has no value, or `where` is not met."""
        computed = {
            name: evaluated(derived.formula, values, f"{name}.formula") for name, derived in self.derived().items()
        }
        completed = {**values, **computed}
        for formula in self.where:
            if not evaluated(formula, completed, "where"):
                given = ", ".join(f"{name}={completed[name]}" for name in sorted(names_in(formula, "where")))
                raise SpecError("where", given=given, expected=formula, fix="give the space values that meet it")
        return completed

    def fix(self, values: Mapping[str, Scalar]) -> Self:
        """A copy with these values, in which a condition on a fixed one is replaced by its branch."""
        space = dict(self.space)
        for name, condition in self.conditional().items():
            if condition.on in values and isinstance(values[condition.on], Scalar):  # `--set` may give a dimension
                branch = condition.branch(values[condition.on])
                if branch is None:
                    del space[name]
                else:
                    space[name] = branch
        return self.but(space={**space, **values})

    def but(self, **changes: object) -> Self:
        """A validated copy."""
        return type(self)(**{name: getattr(self, name) for name in type(self).model_fields} | changes)


def zipped_names(name: str) -> list[str]:
    """Of the parameters in the key of a `Zip`."""
    return [parameter.strip() for parameter in name.split(",")]


def _check_zip(key: str, zipped: Zip, names: Sequence[str]) -> None:
    parameters = zipped_names(key)
    if len(parameters) < 2:
        expected, fix = "a key that names two or more parameters", f'write "{key}, OTHER": Zip(...), or a Categorical'
        raise SpecError(f"space.{key}", given="a Zip of one parameter", expected=expected, fix=fix)
    if twice := [name for name in parameters if names.count(name) > 1]:
        expected, fix = "each parameter in one place of the space", f"remove one of the places of {twice[0]}"
        raise SpecError(twice[0], given=f"a place in the Zip of {key} and another", expected=expected, fix=fix)
    if wrong := [row for row in zipped.rows if len(row) != len(parameters)]:
        expected = f"{len(parameters)} values, for {', '.join(parameters)}"
        raise SpecError(f"space.{key}.rows", given=list(wrong[0]), expected=expected, fix="give one for each")


def sha256_of(spec: object) -> str:
    """Of plain JSON values, whatever the order of keys."""
    return hashlib.sha256(_text(spec, sort_keys=True).encode()).hexdigest()


def _text(spec: object, *, sort_keys: bool = False) -> str:
    return json.dumps(spec, sort_keys=sort_keys, indent=2, allow_nan=False)
