"""The record of a sweep, `sweep.json`: the resolved spec, and where and how it was run."""

from collections.abc import Iterable, Mapping
from itertools import accumulate, chain
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, ModelWrapValidatorHandler, SkipValidation, field_serializer, model_validator

from attnsweep.orchestrator.storage.annotation import Annotation
from attnsweep.orchestrator.storage.environment import Engine, Environment
from attnsweep.orchestrator.storage.extension import Extension
from attnsweep.orchestrator.storage.output_file import refused
from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.storage.place_names import PlaceName, as_argument, nearest, place_of
from attnsweep.orchestrator.storage.provenance import current_provenance, new_identity
from attnsweep.orchestrator.storage.record import DamagedRecordError, Record, RecordFile, reason_of
from attnsweep.orchestrator.storage.shards import (
    MOST_SHARDS,
    WHOLE,
    Shard,
    at_once,
    numbers_in_words,
    place_of_whole,
    shards_of,
)
from attnsweep.orchestrator.storage.sources import Source, refuse_cut_short
from attnsweep.orchestrator.storage.warm_start import WARM_START, WarmStart
from attnsweep.search_spaces.claim import Claim
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.sweep import Sweep, sha256_of
from attnsweep.workloads.base_names import NAME, NamedBase
from attnsweep.workloads.errors import SpecError, UserError
from attnsweep.workloads.user_code import UserCode

SWEEP_FILE = "sweep.json"
STUDY_FILE = "study.journal"
REPORT_FILE = "report/report.html"
_CODE_FOLDER = "code"
_NOTHING_TO_REMEMBER = Annotation()
_BASES_FOLDER = "bases"

CodeFile = Annotated[str, Field(pattern=r"^[^/.\x00-\x1f][^/\x00-\x1f]*(/[^/.\x00-\x1f][^/\x00-\x1f]*)*\.py$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Addend = Annotated[int, Field(gt=0)]
TrialNumber = Annotated[int, Field(ge=0)]
ReplicateNumber = Annotated[int, Field(ge=0)]
BaseName = Annotated[str, Field(pattern=rf"^{NAME.pattern}$")]


class SweepRecord(Record):
    """The content of `sweep.json`. Fields that earlier versions lacked are not written while they are empty.

    Attributes:
        sweep: The sweep's identity, also in the ledger's column `sweep` and as the name of MLflow's parent run.
        spec: The swept space, with the trials and replicates that were added later; the file has the spec of the start.
        spec_sha256: Hash of the stored spec, which is the spec of the sweep's start.
        defaults: The workload's values, at the sweep's start, of the parameters that the spec does not name.
        provenance: Versions, git commit, hardware and command at the sweep's start.
        environments: Environments of the trainings, by the id in the ledger's `environment`; the latest driver's comes
            last.
        code: The sha256 of each of the user's files that are stored in the sweep, by the file's name.
        files: The sha256 of each file that the spec names, such as a corpus, by the file's path. These files are not
            stored.
        more_trials: Number of trials that were added later.
        more_replicates: Numbers of replicates that were added to every trial, one per addition.
        retried: Failed trainings that were trained again: for each `resume --retry-failed`, replicates by trial. Their
            earlier rows are in `set_aside`.
        note, tags: The user's annotations of the sweep; no result depends on them.
        bases: Trained weights that the sweep starts from and has stored: what the user gave, by the name of the
            weights.
        keep_weights: The trials whose final weights are kept at the end of the sweep.
        claim: The claim that `attnsweep verify` tests; `None` without one.
        warm_start: The sha256 of the earlier trials in `warm_start.json` that were given to the sampler; empty without
            any.
        sources: The sweeps that were merged into the directory; none for a sweep that was run.
        shards: The number of drivers of a divided sweep, whose shards hold everything but this record; 0 for an
            undivided one.
        shard: The trials of a divided sweep that this directory holds; `None` for all trials.
    """

    sweep: str
    spec: Sweep
    spec_sha256: str
    defaults: Mapping[str, Scalar]
    provenance: Mapping[str, Any]
    environments: Mapping[str, Environment] = {}
    code: Mapping[CodeFile, Sha256] = Field(default={}, exclude_if=lambda code: not code)
    files: Mapping[str, Sha256] = Field(default={}, exclude_if=lambda files: not files)
    more_trials: int = Field(default=0, ge=0, exclude_if=lambda more: not more)
    more_replicates: tuple[Addend, ...] = Field(default=(), exclude_if=lambda more: not more)
    retried: tuple[Mapping[TrialNumber, tuple[ReplicateNumber, ...]], ...] = Field(
        default=(), exclude_if=lambda retried: not retried
    )
    note: str = Field(default="", exclude_if=lambda note: not note)
    tags: Mapping[str, str] = Field(default={}, exclude_if=lambda tags: not tags)
    bases: Mapping[BaseName, str] = Field(default={}, exclude_if=lambda bases: not bases)
    keep_weights: tuple[TrialNumber, ...] = Field(default=(), exclude_if=lambda trials: not trials)
    claim: Claim | None = Field(default=None, exclude_if=lambda claim: claim is None)
    warm_start: Sha256 | Literal[""] = Field(default="", exclude_if=lambda sha256: not sha256)
    sources: tuple[Source, ...] = Field(default=(), exclude_if=lambda sources: not sources)
    shards: int = Field(default=0, ge=0, le=MOST_SHARDS, exclude_if=lambda shards: not shards)
    shard: Shard | None = Field(default=None, exclude_if=lambda shard: shard is None)

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, fields: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        record = validate(fields)
        if not isinstance(spec := fields["spec"], dict):
            return record
        # The sha256 is computed from the stored values instead of the model, because the model may have gained fields
        # since the values were stored.
        if sha256_of(spec) != record.spec_sha256:
            raise ValueError("the spec does not match the stored sha256")
        return record.model_copy(update={"spec": record._added.of(record.spec)})

    @field_serializer("spec")
    def _at_the_start(self, spec: Sweep) -> dict[str, Any]:
        return Extension(-self._added.trials, -self._added.replicates).of(spec).model_dump(mode="json")

    @property
    def _added(self) -> Extension:
        return Extension(self.more_trials, sum(self.more_replicates))


class Course(Record):
    """The content of `course.json`: whether a run has spent the sweep's budget, and the wall-clock seconds of all
    runs."""

    finished: bool
    seconds: float = Field(ge=0, allow_inf_nan=False)


_RECORD = RecordFile(
    SWEEP_FILE,
    SweepRecord,
    "restore the file from a copy: to change a sweep, run a new one instead of editing its record",
)
COURSE = RecordFile("course.json", Course, "write it anew with: attnsweep resume {}")


class SweepDirectory(SweepRecord):
    """A sweep directory: the sweep's record together with its place.

    Attributes:
        place: The directory, or the prefix in an object store.
        parts: For a divided sweep, the shards that had begun when the directory was opened.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    place: SkipValidation[Place] = Field(exclude=True)
    parts: SkipValidation[tuple["SweepDirectory", ...]] = Field(default=(), exclude=True)

    @staticmethod
    def is_there(where: PlaceName) -> bool:
        """Returns whether a directory holds a sweep, even a damaged one."""
        return place_of(where, "--dir").has_text(SWEEP_FILE)

    @staticmethod
    def check_new(where: PlaceName, subject: str = "--dir", *, is_shard: bool = False) -> None:
        """Raises an error if no new sweep can be created in a directory. Writes nothing.

        A shard's directory may contain files without a record: a driver that was killed has left them.

        Raises:
            UserError: If the directory holds another sweep, or anything else, or cannot be written.
        """
        place = place_of(where, subject)
        if SweepDirectory.is_there(place):
            resume = f"continue that sweep with: attnsweep resume {as_argument(place)}; or choose another --dir"
            raise UserError(
                subject,
                given=str(place),
                expected="a directory that contains no sweep yet",
                fix=resume if subject == "--dir" else "choose another directory",
            )
        if not is_shard and not place.is_vacant():
            raise _taken(place, subject)
        try:
            place.check_makeable()
        except OSError as error:
            raise refused(place, subject, error, kind="directory") from error

    @classmethod
    def create(
        cls,
        where: PlaceName,
        spec: Sweep,
        defaults: Mapping[str, Scalar],
        environment: Environment | None = None,
        code: UserCode | None = None,
        files: Mapping[str, str] = MappingProxyType({}),
        annotation: Annotation = _NOTHING_TO_REMEMBER,
        base: NamedBase | None = None,
        sources: tuple[Source, ...] = (),
        engine_reason: str = "",
        warm_start: WarmStart | None = None,
        shards: int = 0,
        shard: Shard | None = None,
    ) -> "SweepDirectory":
        """Creates a sweep directory: writes `sweep.json`, and stores the user's code, base weights and warm start.

        Args:
            where: The new directory.
            spec: The swept space.
            defaults: The workload's values of the parameters that the spec does not name.
            environment: The environment that will train the sweep, if known.
            code: The user's code that the sweep runs, which is stored in the directory; `None` without any.
            files: The sha256 of each file that the spec names, by the file's path.
            annotation: The user's note, tags and claim.
            base: The weights that the sweep starts from, which are stored in the directory.
            sources: The sweeps that are merged into the directory.
            engine_reason: Why the environment has its engine.
            warm_start: Earlier trials for the sampler, which are stored in the directory.
            shards: The number of drivers, for the record of a divided sweep; 0 for an undivided sweep, or for a shard.
            shard: The trials that the directory holds of the divided sweep in the folder above; `None` for all.

        Raises:
            UserError: If the directory holds another sweep, or anything else, or cannot be written. Of several
                concurrent processes exactly one creates its sweep.
            SpecError: If the spec cannot be stored in a file.
        """
        place = place_of(where, "--dir")
        cls.check_new(place, is_shard=shard is not None)
        environments = {environment.id: environment} if environment else {}
        stored = dict(code.sha256) if code else {}
        bases = {base.name: base.origin} if base else {}
        directory = cls(
            place=place,
            sweep=new_identity(spec.name) if shard is None else cls.open_begun(place_of_whole(place)).sweep,
            spec=spec,
            spec_sha256=spec.sha256(),
            defaults=defaults,
            provenance=current_provenance() | {"engine_reason": engine_reason},
            environments=environments,
            code=stored,
            files=files,
            note=annotation.note,
            tags=annotation.tags,
            bases=bases,
            keep_weights=annotation.keep_weights,
            claim=annotation.claim,
            warm_start=warm_start.sha256 if warm_start else "",
            sources=sources,
            shards=shards,
            shard=shard,
        )
        _check_readable(directory)
        try:
            place.make()
            # In a sweep with shards, code and weights are stored in the shards' directories, because only shards are
            # run.
            if code is not None and not directory.shards:
                # Code files are written before the record that names them. Their names are hashes of their content, so
                # no file is overwritten with other content.
                for name, text in code.texts.items():
                    place.put_text(code_file(stored[name]), text)
            if base is not None and not directory.shards:
                place.put_text(base_file(base.name), base.text)
            if warm_start is not None:
                WARM_START.write(place, warm_start)
            place.put_new_text(SWEEP_FILE, directory.text())
        except FileExistsError as error:
            raise _taken(place) from error
        except OSError as error:
            raise refused(place, "--dir", error, kind="directory") from error
        return directory

    @classmethod
    def open(cls, where: PlaceName) -> "SweepDirectory":
        """Opens a sweep directory by reading its `sweep.json`.

        Raises:
            UserError: If there is no record, it is damaged, or a merge into the directory has not ended.
        """
        directory = cls.open_begun(where)
        if directory.sources and not directory.finished:
            refuse_cut_short(directory.place, directory.sources)
        return directory._with_parts() if directory.shards else directory

    @classmethod
    def open_begun(cls, where: PlaceName) -> "SweepDirectory":
        """Opens a sweep directory like `open`, but also one into which a merge has not ended."""
        place = place_of(where)
        try:
            stored = _RECORD.read(place)
        except OSError as error:
            raise UserError(
                "DIR",
                given=str(place),
                expected=f"a sweep directory, which contains a file {SWEEP_FILE}",
                fix=nearest(
                    place, SWEEP_FILE, otherwise=f"give the directory that `attnsweep run` printed ({error.strerror})"
                ),
            ) from error
        return cls.model_construct(place=place, **dict(stored))

    def _with_parts(self) -> "SweepDirectory":
        shards = at_once(_open_shard, shards_of(self.place), self.place.n_at_once)
        parts = tuple(part for part in shards if part is not None)
        environments = dict(chain(self.environments.items(), *(part.environments.items() for part in parts)))
        return self.but(
            parts=parts, environments=environments, retried=tuple(chain.from_iterable(part.retried for part in parts))
        )

    @property
    def homes(self) -> tuple[Place, ...]:
        """The places that drivers write to: the sweep's own, or those of its begun shards."""
        return tuple(part.place for part in self.parts) if self.shards else (self.place,)

    def whole(self) -> "SweepDirectory":
        """Returns the divided sweep that this shard belongs to; the directory itself if it is no shard or was copied
        alone."""
        above = place_of_whole(self.place)
        return SweepDirectory.open(above) if self.shard and SweepDirectory.is_there(above) else self

    def with_files(self) -> "SweepDirectory":
        """Returns a directory that stores the files of the record: this one or, for a divided sweep, its first begun
        shard.

        Raises:
            UserError: If no shard has begun.
        """
        if self.shards and not self.parts:
            where = as_argument(self.place)
            raise UserError(
                str(self.place),
                given=f"a sweep of {self.shards} shards of which none has begun",
                expected="at least one shard that has begun",
                fix=f"begin a shard with: attnsweep run SPEC --shard 0/{self.shards} --dir {where} --or-resume",
            )
        return self.parts[0] if self.shards else self

    @property
    def of_shard(self) -> Shard:
        """The shard whose trials this directory holds."""
        return self.shard or WHOLE

    @property
    def own_spec(self) -> Sweep:
        """The spec with the number of trials that this directory will hold."""
        return self.spec.but(trials=self.shard.n_of(self.spec.trials)) if self.shard else self.spec

    @property
    def name(self) -> str:
        """The sweep's identity; for a shard, followed by the name of its folder."""
        return f"{self.sweep}.{self.shard.folder}" if self.shard else self.sweep

    @property
    def shortfall(self) -> str:
        """Says which shards have not begun or are not finished; empty if all are finished, or if there are no shards.

        Raises:
            UserError: If a `course.json` is damaged.
        """
        begun = {part.of_shard.index: part for part in self.parts}
        missing = [index for index in range(self.shards) if index not in begun]
        unfinished = [index for index, part in begun.items() if not part.finished]
        states = [("not begun", missing), ("not finished", unfinished)]
        words = [f"{len(indices)} {state} ({numbers_in_words(indices)})" for state, indices in states if indices]
        return f"of {self.shards} shards, {' and '.join(words)}" if words else ""

    def but(self, **changes: Any) -> "SweepDirectory":
        """Returns a copy of the record with some fields changed. Writes nothing; `record_as` does."""
        return self.model_copy(update=changes)

    @property
    def environment(self) -> str | None:
        """The id of the sweep's latest environment; `None` if none is recorded."""
        return next(reversed(list(self.environments)), None)

    @property
    def engine(self) -> Engine:
        """The name of the engine that takes the steps of the sweep's trainings. It never changes during a sweep."""
        return self.engine_of(self.environment)

    @property
    def engine_reason(self) -> str:
        """The reason why the sweep has this engine, as a clause; empty if it was not recorded."""
        return str(self.provenance.get("engine_reason", ""))

    @property
    def engine_in_words(self) -> str:
        """The engine with the reason for it: `vmapped: its steps would not repay compiling`."""
        return f"{self.engine}: {self.engine_reason}" if self.engine_reason else self.engine

    def engine_of(self, environment: str | None) -> Engine:
        """Returns the engine of the sweep's environment with the given id."""
        known = self.environments.get(environment or "")
        return known.engine if known else "vmapped"

    def changes(self, environment: Environment) -> list[str]:
        """Returns in words how the given environment differs from the sweep's latest one."""
        return self.environments[self.environment].changes(environment) if self.environment else []

    def entering(self, environment: Environment) -> "SweepDirectory":
        """Returns a copy of the record with this environment as the latest. Writes nothing; `record_as` does."""
        others = {name: other for name, other in self.environments.items() if name != environment.id}
        return self.but(environments={**others, environment.id: environment})

    def beside(self, environment: Environment) -> "SweepDirectory":
        """Returns a copy of the record with this environment added before the others. Writes nothing; `record_as`
        does."""
        return self.but(environments={environment.id: environment, **self.environments})

    @property
    def alike(self) -> frozenset[str]:
        """The ids of the environments that equal the latest one, or differ from it only in the type of machine."""
        return frozenset(name for name, other in self.environments.items() if not self.changes(other))

    def machine_of(self, environment: str | None) -> str | None:
        """Returns the type of machine of the sweep's environment with the given id; `None` if it was not recorded."""
        known = self.environments.get(environment or "")
        return known.machine if known else None

    @property
    def stages(self) -> tuple[int, ...]:
        """The number of replicates per trial at the sweep's start and after each addition; empty if a rule decides it.

        When replicates are added, a trial that was reported to the study keeps the value of its first replicates there.
        """
        now = self.spec.replicates
        if not isinstance(now, int):
            return ()
        return tuple(accumulate(self.more_replicates, initial=now - self._added.replicates))

    @property
    def n_retried(self) -> int:
        """The number of times that failed trainings were trained again."""
        return sum(len(replicates) for by_trial in self.retried for replicates in by_trial.values())

    def retried_of(self, trial: int) -> list[frozenset[int]]:
        """Returns one set for each retry of failed trainings: the replicates of this trial that were retried then or
        later.

        A trial that was reported to the study keeps its value there. The value was computed without the replicates that
        were retried since.
        """
        times = [by_trial.get(trial, ()) for by_trial in self.retried]
        return [frozenset(chain(*times[at:])) for at in range(len(times))]

    @property
    def all_sweeps(self) -> frozenset[str]:
        """The identities of all sweeps whose rows the directory holds."""
        return frozenset({self.sweep, *(source.sweep for source in self.sources)})

    @property
    def is_extended(self) -> bool:
        """Whether trials or replicates were added after the sweep had started."""
        return bool(self._added)

    def extended(self, more: Extension) -> "SweepDirectory":
        """Returns a copy of the record with trials and replicates added. Writes nothing; `record_as` does."""
        replicates = (*self.more_replicates, *([more.replicates] if more.replicates else []))
        more_trials = self.more_trials + more.trials
        return self.but(spec=more.of(self.spec), more_trials=more_trials, more_replicates=replicates)

    def retrying(self, failed: Iterable[tuple[int, int]]) -> "SweepDirectory":
        """Returns a copy of the record in which these (trial, replicate) pairs are retried. Writes nothing;
        `record_as` does."""
        by_trial: dict[int, tuple[int, ...]] = {}
        for trial, replicate in sorted(failed):
            by_trial[trial] = (*by_trial.get(trial, ()), replicate)
        return self.but(retried=(*self.retried, by_trial)) if by_trial else self

    def record_as(self, changed: "SweepDirectory") -> None:
        """Replaces the stored record by a changed one. The caller must have read the record while holding the lock.
        Repairs a damaged `course.json`."""
        try:
            course = self._course()
        except DamagedRecordError:
            course = None
        if course is None or changed.spec != self.spec or changed.retried != self.retried:
            # The file of the course (finished or not, and seconds) is written before the record. If the process is
            # killed between both writes, the next `resume` finds nothing to do and marks the sweep as finished again.
            seconds = course.seconds if course else 0.0
            COURSE.write(self.place, Course(finished=False, seconds=seconds))
        if changed != self:
            _RECORD.write(self.place, changed)

    def record(self) -> str:
        """Returns the text of the sweep's file `sweep.json`."""
        return self.place.read_text(SWEEP_FILE)

    @property
    def finished(self) -> bool:
        """Whether a run has spent the sweep's budget. Raises UserError if `course.json` is damaged."""
        return self._course().finished

    @property
    def seconds_spent(self) -> float:
        """The wall-clock seconds of all runs that ended regularly. Raises UserError if `course.json` is damaged."""
        return self._course().seconds

    def record_run(self, *, finished: bool, seconds: float) -> None:
        """Records the end of a run: whether the budget is spent, and how many seconds the run took."""
        COURSE.write(self.place, Course(finished=finished, seconds=self.seconds_spent + seconds))

    def _course(self) -> Course:
        if self.shards:
            courses = at_once(SweepDirectory._course, self.parts, self.place.n_at_once)
            finished = len(courses) == self.shards and all(course.finished for course in courses)
            # Shards run concurrently, so their times are not added up.
            return Course(finished=finished, seconds=max((course.seconds for course in courses), default=0.0))
        try:
            return COURSE.read(self.place)
        except FileNotFoundError:
            return Course(finished=False, seconds=0.0)

    def text(self) -> str:
        """Returns this record as the text of `sweep.json`."""
        return _RECORD.text(self)


def _open_shard(place: Place) -> SweepDirectory | None:
    """Opens a shard; returns `None` if the shard's driver was killed before it wrote a record."""
    return SweepDirectory.open_begun(place) if SweepDirectory.is_there(place) else None


def code_file(sha256: str) -> str:
    """Returns the file name, within a sweep directory, of a user's code file with this sha256."""
    return f"{_CODE_FOLDER}/{sha256}.py"


def base_file(name: str) -> str:
    """Returns the file name, within a sweep directory, of a base's weights."""
    return f"{_BASES_FOLDER}/{name}.json"


def _check_readable(directory: SweepDirectory) -> None:
    """Raises an error, before anything is written, if a record could not be read back.

    Raises:
        SpecError: If the record cannot be read back.
    """
    try:
        _RECORD.parse(directory.text())
    except ValueError as error:
        raise SpecError(
            "SPEC",
            given=directory.spec.name,
            expected="a sweep that can be stored in a file, whose texts and paths are UTF-8",
            fix=f"correct the text, or rename the file that it names ({reason_of(error)})",
        ) from error


def _taken(place: Place, subject: str = "--dir") -> UserError:
    return UserError(subject, given=str(place), expected="a new or empty directory", fix="choose another directory")
