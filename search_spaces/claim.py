"""Claims about trainings that can be tested. A claim consists of a sentence, statements on rates and medians, and a
budget of trainings."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, Strict, ValidationError, model_validator

from attnsweep.search_spaces.dimensions import Categorical, Dimension, Scalar, Zip
from attnsweep.search_spaces.loading import beside
from attnsweep.search_spaces.model import SpecModel, first_mistake
from attnsweep.search_spaces.statement import Statement, read_statement
from attnsweep.search_spaces.sweep import SWEEP_NAME, Sweep
from attnsweep.search_spaces.yaml_text import read_yaml
from attnsweep.workloads.errors import SpecError, UserError, did_you_mean
from attnsweep.workloads.files import given_file

_GROWTH = 4
"""Each further batch adds at least 1 / `_GROWTH` of the trainings so far, so that the claim is evaluated only about
log(number of trainings) times."""


class Claim(SpecModel):
    """A claim about rates or medians of groups of trainings, which `attnsweep verify` tests (docs/verify.md).

    Attributes:
        name: The name of the sweep: letters, digits, `_`, `.` and `-`. By default the file's name.
        claim: The claim as a sentence.
        source: The publication or person that makes the claim.
        workload: As in a `Sweep`.
        fixed: Parameters that are the same in all groups.
        groups: By the group's name, the values of the parameters in which the groups differ. Each group gives the same
            parameters.
        states: Statements such as `rate(stuck, small) > 0.5`. The claim holds if all of them hold.
        budget: The largest number of trainings, of all groups together.
        batch: The number of trainings of each group at the first evaluation.
        confidence: 1 minus the largest allowed chance of a wrong verdict, whether `supported` or `refuted`.
        seed: Seeds all trainings. Choose a seed other than that of the trainings that led to the claim.
    """

    name: str = Field(pattern=SWEEP_NAME)
    claim: str = Field(min_length=1)
    source: str = Field(min_length=1)
    workload: str
    fixed: Mapping[str, Scalar] = {}
    groups: Mapping[str, Mapping[str, Scalar]] = Field(min_length=1)
    states: Annotated[tuple[str, ...], Field(min_length=1), Strict(False)]
    budget: int = Field(ge=1, le=2**31 - 1)
    batch: int = Field(default=16, ge=1, le=2**31 - 1)
    confidence: float = Field(default=0.95, ge=0.5, lt=1)
    seed: int = Field(default=0, ge=0, le=2**63 - 1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.sweep()
        if self.budget < self.batch * len(self.groups):
            expected = f"at least batch={self.batch} for each of the {len(self.groups)} groups"
            raise SpecError(
                "budget", given=self.budget, expected=expected, fix="raise the field budget, or lower the field batch"
            )
        used = {quantity.group for statement in self.statements for quantity in statement.quantities}
        for group in sorted(used - {*self.groups}):
            fix = did_you_mean(group, self.groups, otherwise="name one of these groups")
            raise SpecError("states", given=group, expected=f"one of the groups: {', '.join(self.groups)}", fix=fix)
        for group in sorted({*self.groups} - used):
            given = "no statement about this group"
            raise SpecError(f"groups.{group}", given=given, expected="at least one statement", fix="remove the group")
        return self

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The parsed statements of the claim, from the texts of the field `states`."""
        return tuple(map(read_statement, self.states))

    @property
    def parameters(self) -> list[str]:
        """The sorted names of the parameters in which the claim's groups of trainings differ."""
        return sorted(next(iter(self.groups.values())))

    def sweep(self) -> Sweep:
        """Returns the sweep that trains the first batch of trainings of each group. Each group is one trial."""
        return Sweep(
            name=self.name,
            description=self.claim,
            workload=self.workload,
            space={**self.fixed, **self._varied()},
            sampler="grid",
            trials=len(self.groups),
            replicates=self.batch,
            seed=self.seed,
        )

    def next_size(self, n: int) -> int | None:
        """How many trainings each group, of `n` now, has at the next evaluation; `None` if the budget is used up."""
        most = self.budget // len(self.groups)
        return min(n + max(self.batch, n // _GROWTH), most) if n < most else None

    def says_the_same(self, other: "Claim") -> bool:
        """May differ in its sentence in prose, its source and its largest number of trainings."""
        same = self.but(claim=other.claim, source=other.source, budget=max(self.budget, other.budget))
        return same.stored() == other.but(budget=same.budget).stored()

    def stored(self) -> Self:
        """As a sweep directory stores it, which holds the user's workload file: without the file's folder."""
        return self.but(workload=self.workload.rpartition("/")[2])

    def but(self, **changes: object) -> Self:
        """Returns a copy of the claim in which the given fields are changed. The copy is validated."""
        return type(self)(**{name: getattr(self, name) for name in type(self).model_fields} | changes)

    def _varied(self) -> dict[str, Dimension]:
        names = self.parameters
        for group, values in self.groups.items():
            if sorted(values) != names:
                given, fix = ", ".join(sorted(values)) or "no parameter", "give each in every group, or in `fixed`"
                expected = f"the parameters of the other groups: {', '.join(names) or 'none'}"
                raise SpecError(f"groups.{group}", given=given, expected=expected, fix=fix)
        rows = tuple(tuple(values[name] for name in names) for values in self.groups.values())
        if len(set(rows)) < len(rows):
            expected = "groups that differ in a parameter"
            fix = "remove one of the two groups"
            raise SpecError("groups", given="two groups with the same values", expected=expected, fix=fix)
        if len(names) > 1:
            return {", ".join(names): Zip(rows)}
        return {name: Categorical(tuple(row[0] for row in rows)) for name in names}


def load_claim(path: Path) -> Claim:
    """Without a field `name`, a claim has its file's name. Raises a `UserError`."""
    text = given_file(path, "CLAIM", "a claim as YAML, or a directory that `attnsweep verify` has made").read_text()
    try:
        fields = read_yaml(text)
        given = json.dumps({"name": path.stem} | fields if isinstance(fields, dict) else fields)
    except ValueError as error:
        raise UserError(
            "CLAIM", given=str(path), expected="a claim as YAML", fix=f"correct the syntax of the file ({error})"
        ) from error
    try:
        claim = Claim.model_validate_json(given)
    except ValidationError as error:
        raise first_mistake(error, Claim.model_fields) from None
    return claim.but(workload=beside(claim.workload, path))
