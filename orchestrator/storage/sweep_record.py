from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate, chain, groupby
from operator import itemgetter
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, field_serializer, model_validator

from attnsweep.orchestrator.storage.environment import Engine, Environment
from attnsweep.orchestrator.storage.record import Record, unless_empty
from attnsweep.orchestrator.storage.shards import WHOLE, Shard
from attnsweep.search_spaces.claim import Claim
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.sweep import Sweep, sha256_of
from attnsweep.workloads.errors import UserError

CodeFile = Annotated[str, Field(pattern=r"^[^/.\x00-\x1f][^/\x00-\x1f]*(/[^/.\x00-\x1f][^/\x00-\x1f]*)*$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Addend = Annotated[int, Field(gt=0)]
TrialNumber = Annotated[int, Field(ge=0)]
ReplicateNumber = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Extension:
    """Trials, and replicates per trial, that are added to a sweep."""

    trials: int = 0
    replicates: int = 0

    def __bool__(self) -> bool:
        return bool(self.trials or self.replicates)

    def of(self, spec: Sweep) -> Sweep:
        """The spec with the additions. Negative numbers undo them.

        Raises:
            UserError: If a `Sequential` rule decides how many replicates a trial gets, or if a pruner ends trials
                early.
        """
        if not self.replicates:
            return spec.but(trials=spec.trials + self.trials) if self.trials else spec
        if not isinstance(spec.replicates, int):
            expected = f"a sweep with a fixed number of replicates, but in this sweep a rule decides: {spec.replicates}"
            fix = "add trials, or run a new sweep with another rule"
            raise UserError("--replicates", given=f"+{self.replicates}", expected=expected, fix=fix)
        if spec.pruner is not None:
            expected = "a sweep without a pruner, because the pruner has judged trials by their first replicates"
            fix = "add trials, or run a new sweep with more replicates"
            raise UserError("--replicates", given=f"+{self.replicates}", expected=expected, fix=fix)
        return spec.but(trials=spec.trials + self.trials, replicates=spec.replicates + self.replicates)


class SweepRecord(Record):
    """The content of `sweep.json`: what a sweep trains, where and how it was run, and what was added later.

    Attributes:
        sweep: The sweep's identity, also in the ledger's column `sweep` and as the name of MLflow's parent run.
        spec: The sweep's spec, including the trials and replicates that were added later. The file itself stores the
            spec of the start.
        spec_sha256: Hash of the spec of the sweep's start.
        defaults: The workload's values, at the sweep's start, of the parameters that the spec does not name.
        provenance: Versions, git commit, hardware and command at the sweep's start.
        environments: Environments of the trainings, by the id in the ledger's column `environment`. The last one is
            that of the latest driver.
        code: The sha256 of each of the user's files that are stored in the sweep, by the file's name.
        files: The sha256 of each file that the spec names, such as a corpus, by the file's path. These files are not
            stored.
        more_trials: Number of trials that were added later.
        more_replicates: How many replicates were added to every trial, one number for each addition.
        retried: Failed trainings that were trained again: for each `resume --retry-failed`, the replicates by trial.
            The rows of the failures are in the folder `set_aside`.
        keep_weights: The trials whose final weights are kept at the end of the sweep.
        warm_start: The sha256 of the earlier trials in `warm_start.json` that were given to the sampler; empty without
            any.
    """

    sweep: str
    spec: Sweep
    spec_sha256: str
    defaults: Mapping[str, Scalar]
    provenance: Mapping[str, Any]
    environments: Mapping[str, Environment] = {}
    code: Mapping[CodeFile, Sha256] = unless_empty({})
    files: Mapping[str, Sha256] = unless_empty({})
    more_trials: int = unless_empty(0, ge=0)
    more_replicates: tuple[Addend, ...] = unless_empty(())
    retried: tuple[Mapping[TrialNumber, tuple[ReplicateNumber, ...]], ...] = unless_empty(())
    note: str = unless_empty("")
    tags: Mapping[str, str] = unless_empty({})
    keep_weights: tuple[TrialNumber, ...] = unless_empty(())
    claim: Claim | None = unless_empty(None)
    warm_start: Sha256 | Literal[""] = unless_empty("")
    shard: Shard | None = unless_empty(None)

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, fields: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        record = validate(fields)
        if not isinstance(spec := fields["spec"], dict):
            return record
        # The sha256 is computed from the values as they are stored. The parsed model may have new fields with defaults,
        # which would change the sha256.
        if sha256_of(spec) != record.spec_sha256:
            raise ValueError("the spec does not match the stored sha256")
        return record.model_copy(update={"spec": record._added.of(record.spec)})

    @field_serializer("spec")
    def _at_the_start(self, spec: Sweep) -> dict[str, Any]:
        return Extension(-self._added.trials, -self._added.replicates).of(spec).model_dump(mode="json")

    @property
    def _added(self) -> Extension:
        return Extension(self.more_trials, sum(self.more_replicates))

    @property
    def of_shard(self) -> Shard:
        return self.shard or WHOLE

    @property
    def own_spec(self) -> Sweep:
        """With the number of trials that this directory holds."""
        return self.spec.but(trials=self.shard.n_of(self.spec.trials)) if self.shard else self.spec

    def but(self, **changes: Any) -> Self:
        """Writes nothing: `record_as` stores the copy."""
        return self.model_copy(update=changes)

    @property
    def environment(self) -> str | None:
        """The latest one's id; `None` if none is recorded."""
        return next(reversed(list(self.environments)), None)

    @property
    def engine(self) -> Engine:
        """It never changes during a sweep."""
        return self.engine_of(self.environment)

    @property
    def engine_reason(self) -> str:
        """As a part of a sentence; empty if it was not recorded."""
        return str(self.provenance.get("engine_reason", ""))

    @property
    def engine_in_words(self) -> str:
        """Such as `eager: its steps would not repay compiling`."""
        return f"{self.engine}: {self.engine_reason}" if self.engine_reason else self.engine

    def engine_of(self, environment: str | None) -> Engine:
        """`eager` if the record lacks this environment."""
        known = self.environments.get(environment or "")
        return known.engine if known else "eager"

    def machine_of(self, environment: str | None) -> str | None:
        """`None` if it was not recorded."""
        known = self.environments.get(environment or "")
        return known.machine if known else None

    def changes(self, environment: Environment) -> list[str]:
        """How versions differ from those of the last run; empty if there was none."""
        return self.environments[self.environment].changes(environment) if self.environment else []

    def entering(self, environment: Environment) -> Self:
        """With this environment as the latest. Writes nothing: `record_as` stores the copy."""
        others = {name: other for name, other in self.environments.items() if name != environment.id}
        return self.but(environments={**others, environment.id: environment})

    def beside(self, environment: Environment) -> Self:
        """With this environment added, but not as the latest. Writes nothing: `record_as` stores the copy."""
        return self.but(environments={environment.id: environment, **self.environments})

    @property
    def alike(self) -> frozenset[str]:
        """The ids of the environments with the latest one's versions, itself included; machines may differ."""
        return frozenset(name for name, other in self.environments.items() if not self.changes(other))

    @property
    def stages(self) -> tuple[int, ...]:
        """Replicates per trial at the start and after each addition; empty with a `Sequential` rule.

        If the sampler has already been told a trial's value, added replicates do not change this value.
        """
        now = self.spec.replicates
        if not isinstance(now, int):
            return ()
        return tuple(accumulate(self.more_replicates, initial=now - self._added.replicates))

    @property
    def n_retried(self) -> int:
        """By `resume --retry-failed`."""
        return sum(len(replicates) for by_trial in self.retried for replicates in by_trial.values())

    def retried_of(self, trial: int) -> list[frozenset[int]]:
        """For each `resume --retry-failed`, the trial's replicates that it or a later one trained again.

        If the sampler was told a trial's value before, it keeps this value, which was computed without these
        replicates.
        """
        times = [by_trial.get(trial, ()) for by_trial in self.retried]
        return [frozenset(chain(*times[at:])) for at in range(len(times))]

    def extended(self, more: Extension) -> Self:
        """Writes nothing: `record_as` stores the copy."""
        return self.but(
            spec=more.of(self.spec),
            more_trials=self.more_trials + more.trials,
            more_replicates=(*self.more_replicates, more.replicates) if more.replicates else self.more_replicates,
        )

    def retrying(self, failed: Iterable[tuple[int, int]]) -> Self:
        """Marks (trial, replicate) to be trained again. Writes nothing: `record_as` stores the copy."""
        pairs = groupby(sorted(failed), key=itemgetter(0))
        by_trial = {trial: tuple(replicate for _, replicate in group) for trial, group in pairs}
        return self.but(retried=(*self.retried, by_trial)) if by_trial else self
