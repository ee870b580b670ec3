"""Claims about trainings that can be tested: a sentence, statements on rates and medians, a budget of trainings."""

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
"""Each further batch adds at least 1 / `_GROWTH` of the trainings so far, so evaluations grow like log(trainings)."""


class Claim(SpecModel):
    """A claim about rates or medians of groups of trainings, which `attnsweep verify` tests (docs/claims.md).

    Attributes:
        claim: A sentence.
        groups: The values of the parameters in which the groups differ, by the group's name.
        states: Statements such as `rate(stuck, small) > 0.5`, which all hold if the claim does.
        budget: The most trainings, of all groups together.
        batch: Trainings of each group at the first evaluation.
        confidence: 1 minus the largest allowed chance of a wrong verdict.
        seed: Choose another one than that of the trainings that led to the claim.
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
            expected, fix = f"at least batch={self.batch} for each of {len(self.groups)} groups", "raise budget"
            raise SpecError("budget", given=self.budget, expected=expected, fix=fix)
        used = {quantity.group for statement in self.statements for quantity in statement.quantities}
        for group in sorted(used - {*self.groups}):
            fix = did_you_mean(group, self.groups, otherwise="name one of these groups")
            raise SpecError("states", given=group, expected=f"one of the groups: {', '.join(self.groups)}", fix=fix)
        for group in sorted({*self.groups} - used):
            expected = "at least one statement about it"
            raise SpecError(f"groups.{group}", given="no statement", expected=expected, fix="remove the group")
        return self

    @property
    def statements(self) -> tuple[Statement, ...]:
        return tuple(map(read_statement, self.states))

    @property
    def parameters(self) -> list[str]:
        return sorted(next(iter(self.groups.values())))

    def sweep(self) -> Sweep:
        """Of the first batch; each group is one trial."""
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
        """The trainings of each group, `n` so far, at the next evaluation; `None` if the budget is used up."""
        last = self.budget // len(self.groups)
        return min(n + max(self.batch, n // _GROWTH), last) if n < last else None

    def says_the_same(self, other: "Claim") -> bool:
        """Except in its sentence, source and budget."""
        same = self.but(claim=other.claim, source=other.source, budget=max(self.budget, other.budget))
        return same.stored() == other.but(budget=same.budget).stored()

    def stored(self) -> Self:
        """As a sweep directory holds it: without the folder of the user's workload file, which is stored there too."""
        return self.but(workload=self.workload.rpartition("/")[2])

    def but(self, **changes: object) -> Self:
        """A validated copy."""
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
            raise SpecError("groups", given="two with the same values", expected=expected, fix="remove one of them")
        if len(names) > 1:
            return {", ".join(names): Zip(rows)}
        return {name: Categorical(tuple(row[0] for row in rows)) for name in names}


def load_claim(path: Path) -> Claim:
    """Without a field `name` it has its file's. Raises a `UserError`."""
    text = given_file(path, "CLAIM", "a claim as YAML, or a directory that `attnsweep verify` has made").read_text()
    try:
        fields = read_yaml(text)
        given = json.dumps({"name": path.stem} | fields if isinstance(fields, dict) else fields)
    except ValueError as error:
        fix = f"correct the syntax of the file ({error})"
        raise UserError("CLAIM", given=str(path), expected="a claim as YAML", fix=fix) from error
    try:
        claim = Claim.model_validate_json(given)
    except ValidationError as error:
        raise first_mistake(error, Claim.model_fields) from None
    return claim.but(workload=beside(claim.workload, path))
