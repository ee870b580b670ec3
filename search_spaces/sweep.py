"""The description of a sweep, that is, of one experiment. It is immutable, and is written as JSON and read back without
loss."""

import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, Strict, TypeAdapter, ValidationError, model_validator

from attnsweep.search_spaces.dimensions import Categorical, Conditional, Derived, Dimension, Scalar, Varied, Zip
from attnsweep.search_spaces.formulas import evaluated, names_in
from attnsweep.search_spaces.measured import Constraint, Measured, Objective, StuckRate, read_constraints
from attnsweep.search_spaces.model import SpecModel, first_mistake
from attnsweep.search_spaces.pruners import PrunerField
from attnsweep.search_spaces.replication import Replicates, most_wanted
from attnsweep.search_spaces.yaml_text import yaml_text
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import CERTIFIED_SHARE

Sampler: TypeAlias = Literal["tpe", "random", "qmc", "grid", "boundary", "nsga2"]
LEARN_NOTHING: frozenset[Sampler] = frozenset({"random", "qmc", "grid"})
"""The samplers that do not learn: their draws do not depend on how earlier trials ended."""
SEVERAL_GOALS: tuple[Sampler, ...] = ("tpe", "nsga2", "random", "qmc", "grid")
"""The samplers that support several objectives and constraints."""

_TRAININGS_WITH_ALL_PROBES = 250_000
"""The largest sweep, in trainings, whose curves keep every probe by default. For system P (attention on positions), its
curves take 600 MB."""

SWEEP_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$"


def _named(space: object) -> object:
    """Validates the parameters of a space one at a time, so that an error names the parameter at fault."""
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
        # The value is returned unchanged, because Pydantic will refuse it with an error that names the parameter.
        return given


_DIMENSION: TypeAdapter[Dimension] = TypeAdapter(Dimension)


class Sweep(SpecModel):
    """One experiment, from which all its trainings follow: workload, search space, sampler, budget, replicates and
    seed.

    Attributes:
        name: The name of directories and MLflow runs: letters, digits, `_`, `.` and `-`.
        workload: A registered name, `module:Class`, or `path/to/file.py:Class`.
        space: How parameters vary, by name; a bare value is fixed. Other parameters have the workload's default. The
            name of a `Zip` is those of its parameters, separated by commas.
        where: What the parameters of every trial must meet, such as `d_model % n_heads == 0`.
        sampler: The sampler that chooses the configurations: docs/sampling.md.
        trials: The most configurations to train.
        seconds: Wall time after which no further trial is started.
        target: No further trial is started once one meets this, such as `solved_rate >= 0.95`; written like a
            constraint.
        patience: No further trial is started once this many trials in a row are no better than one before them.
        replicates: Seeded trainings of each trial: a number, or a `Sequential` rule.
        seed: Seeds the sampler and all trainings.
        objective: The value that is reported to the sampler for each trial, or several values: docs/sampling.md.
        constraints: What a trial must meet to count as good, such as `stuck_rate <= 0.1`: docs/sampling.md.
        certified_share: Share of the stuck trainings whose label is tested: docs/outcomes.md.
        pruner: Ends trials early that fall behind: docs/pruning.md; `None` for none.
        prune_anyway: Allows a pruner although the objective is the stuck rate, which pruning biases.
        curves_every: Keep one in this many probes of each curve, besides the first and the last. `None` keeps every
            probe in sweeps of up to 250,000 trainings, one in 2 in sweeps of up to 500,000, and so on. `replay` can
            compute the other probes again.
        storage: An Optuna storage URL instead of the sweep directory's journal; for SQLite with an absolute path.
        description: One line for `attnsweep specs` and MLflow.
    """

    name: str = Field(pattern=SWEEP_NAME)
    workload: str
    space: Annotated[Mapping[str, Dimension], BeforeValidator(_named)]
    where: Annotated[
        tuple[str, ...], Strict(False), BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
    ] = Field(default=(), exclude_if=lambda formulas: not formulas)
    sampler: Sampler = "tpe"
    trials: int = Field(ge=1, le=2**31 - 1)
    seconds: float | None = Field(default=None, gt=0)
    target: str | None = Field(default=None, exclude_if=lambda target: target is None)
    patience: int | None = Field(default=None, ge=1, exclude_if=lambda patience: patience is None)
    replicates: Replicates = 1
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    objective: Objective = StuckRate()
    constraints: Annotated[
        tuple[str, ...], Strict(False), BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
    ] = Field(default=(), exclude_if=lambda texts: not texts)
    # A field with `exclude_if` is left out of the JSON if it has its default. So a spec that was written before the
    # field existed keeps its sha256.
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
        labels = [objective.label for objective in self.objectives]
        for index, label in enumerate(labels):
            if label in labels[:index]:
                expected = "each objective once"
                fix = "remove the repeated objective"
                raise SpecError("objective", given=f"the objective {label}, given twice", expected=expected, fix=fix)
        read_constraints(self.constraints)
        read_constraints(self.targets, "target")
        if self.patience is not None and len(labels) > 1:
            expected = "a single objective, by which trials are better or worse"
            fix = "name one objective, or write a target"
            raise SpecError("patience", given=self.patience, expected=expected, fix=fix)
        return self

    @model_validator(mode="after")
    def _check_zips(self) -> Self:
        names = [
            name
            for key, dimension in self.space.items()
            for name in (zipped_names(key) if isinstance(dimension, Zip) else [key])
        ]
        for key, dimension in self.space.items():
            if isinstance(dimension, Zip):
                _check_zip(key, dimension, names)
        return self

    @model_validator(mode="after")
    def _check_formulas(self) -> Self:
        has_value = {
            name: dimension
            for name, dimension in self.parameters().items()
            if not isinstance(dimension, Conditional) or dimension.otherwise is not None
        }
        formulas = [(f"space.{name}.formula", derived.formula) for name, derived in self.derived().items()]
        formulas += [("where", formula) for formula in self.where]
        for subject, formula in formulas:
            known = {*has_value} - ({*self.derived()} if subject != "where" else set())
            for name in sorted(names_in(formula, subject) - known):
                raise SpecError(
                    subject,
                    given=formula,
                    expected=f"a formula of parameters that the space gives every trial: {', '.join(sorted(known))}",
                    fix=f"add {name} to the space"
                    if name not in self.space
                    else f"give {name} a value in every trial, without Derived",
                )
        return self

    @property
    def objectives(self) -> tuple[Measured, ...]:
        """The objectives as a tuple, also if there is only one."""
        return self.objective if isinstance(self.objective, tuple) else (self.objective,)

    @property
    def bounds(self) -> tuple[Constraint, ...]:
        """The parsed constraints of the sweep, from the texts of the field `constraints`."""
        return read_constraints(self.constraints)

    @property
    def targets(self) -> tuple[str, ...]:
        """The target, if there is one."""
        return () if self.target is None else (self.target,)

    @property
    def ends_early(self) -> bool:
        """Whether results may end the sweep before its budget is spent."""
        return self.target is not None or self.patience is not None

    def __repr__(self) -> str:
        """Summarizes the sweep in one line; `to_yaml` has the whole spec."""
        n_swept = len(self.varied()) + len(self.conditional())
        seeds = self.replicates if isinstance(self.replicates, int) else f"up to {self.replicates.at_most}"
        return f"<Sweep {self.name}: {self.workload}, {n_swept} parameters swept, {self.trials} trials x {seeds} seeds>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.to_yaml())}</pre>"

    def to_json(self) -> str:
        """Returns the sweep as JSON text. It keeps the order of the parameters in the space, because samplers draw them
        in this order."""
        return _text(self.model_dump(mode="json"))

    def to_yaml(self) -> str:
        """Returns the sweep as YAML 1.2, which `attnsweep run` accepts. Fields that have their default are left out."""
        return yaml_text(_non_defaults(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote. Raises a `SpecError`."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise first_mistake(error) from None

    def sha256(self) -> str:
        """Of the content, whatever the order of the parameters: a stored sweep draws in its own."""
        return sha256_of(self.model_dump(mode="json"))

    def fixed(self) -> dict[str, Scalar]:
        """Returns by name the values of the parameters that are the same in all trials."""
        return {name: value for name, value in self.space.items() if isinstance(value, bool | int | float | str | None)}

    def one_probe_in(self) -> int:
        """n, where stored curves hold every n-th probe, and always the first and the last."""
        return self.curves_every or -(-self.trials * most_wanted(self.replicates) // _TRAININGS_WITH_ALL_PROBES)

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
        """What varies and depends on no other parameter; those of a `Zip` one by one."""
        return {name: dimension for name, dimension in self.parameters().items() if isinstance(dimension, Varied)}

    def drawn(self) -> dict[str, Varied]:
        """What a sampler draws in every trial; a `Zip` is one choice of a row."""
        drawn = {
            name: dimension.drawn() if isinstance(dimension, Zip) else dimension
            for name, dimension in self.space.items()
        }
        return {name: dimension for name, dimension in drawn.items() if isinstance(dimension, Varied)}

    def grid(self) -> dict[str, list[Scalar]]:
        """Returns by name the list of values of each parameter, of which the sampler `grid` tries all combinations.
        Parameters that vary together in a `Zip` have one list, that of its rows."""
        return {name: dimension.grid() for name, dimension in self.drawn().items()}

    def unzipped(self, drawn: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Returns drawn values in which each row of a `Zip` is replaced by the values of its parameters, by name."""
        values: dict[str, Scalar] = {}
        for name, value in drawn.items():
            if isinstance(self.space.get(name), Zip):
                values |= zip(zipped_names(name), Zip.row(str(value)), strict=True)
            else:
                values[name] = value
        return values

    def conditional(self) -> dict[str, Conditional]:
        """Returns by name the dimensions of the parameters that depend on the value of another parameter."""
        return {name: dimension for name, dimension in self.space.items() if isinstance(dimension, Conditional)}

    def derived(self) -> dict[str, Derived]:
        """Returns by name the parameters that are computed from others."""
        return {name: dimension for name, dimension in self.space.items() if isinstance(dimension, Derived)}

    def completed(self, values: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """With the parameters computed from others. Raises a `SpecError` for a formula without value, or by `where`."""
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
        """A copy with these values; a parameter whose condition is on one of them varies as it says."""
        space = dict(self.space)
        for name, condition in self.conditional().items():
            if condition.on in values:
                branch = condition.branch(values[condition.on])
                if branch is None:
                    del space[name]
                else:
                    space[name] = branch
        return self.but(space={**space, **values})

    def but(self, **changes: object) -> Self:
        """Returns a copy of the sweep in which the given fields are changed. The copy is validated."""
        return type(self)(**{name: getattr(self, name) for name in type(self).model_fields} | changes)


def zipped_names(name: str) -> list[str]:
    """Splits the key of a `Zip` in a search space, such as `d_model, n_heads`, into the names of its parameters."""
    return [parameter.strip() for parameter in name.split(",")]


def _check_zip(key: str, zipped: Zip, names: Sequence[str]) -> None:
    parameters = zipped_names(key)
    if len(parameters) < 2:
        given = "a Zip (parameters that vary together) of a single parameter"
        fix = f'write "{key}, OTHER": Zip(...), or "{key}": Categorical(...)'
        raise SpecError(f"space.{key}", given=given, expected="a key that names two or more parameters", fix=fix)
    for name in parameters:
        if names.count(name) > 1:
            given = f"a place in the Zip of {key} and another in the space"
            expected = "each parameter in one place of the sweep only"
            raise SpecError(name, given=given, expected=expected, fix="remove the parameter from the Zip or the space")
    subject = f"space.{key}.rows"
    for index, row in enumerate(zipped.rows):
        if len(row) != len(parameters):
            expected = f"{len(parameters)} values, for {', '.join(parameters)}"
            fix = "give one value in the row for each parameter"
            raise SpecError(subject, given=list(row), expected=expected, fix=fix)
        if row in zipped.rows[:index]:
            raise SpecError(
                subject, given=list(row), expected="each row of the Zip once", fix="remove the repeated row"
            )


def sha256_of(spec: object) -> str:
    """Returns the SHA-256 of a sweep or claim, given as plain JSON values. The order of keys does not matter."""
    return hashlib.sha256(_text(spec, sort_keys=True).encode()).hexdigest()


def _non_defaults(part: SpecModel) -> dict[str, object]:
    """Converts a part of a sweep to plain values. Fields that have their default are left out."""
    fields = {
        name: _plain(value)
        for name, field in type(part).model_fields.items()
        if (value := getattr(part, name)) != field.default or name == "kind"
    }
    return fields | (part.model_extra or {})


def _plain(value: object) -> object:
    if isinstance(value, SpecModel):
        return _non_defaults(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return {name: _plain(item) for name, item in value.items()} if isinstance(value, Mapping) else value


def _text(spec: object, *, sort_keys: bool = False) -> str:
    return json.dumps(spec, sort_keys=sort_keys, indent=2, allow_nan=False)
