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
    """What `sweep.json` holds. Fields that earlier versions did not have are left out of it where they are empty.

    Attributes:
        sweep: The sweep's identity, also in the ledger's column `sweep` and as the name of MLflow's parent run.
        spec: What is swept, with the trials and replicates that were added later; the file has that of the start.
        spec_sha256: Hash of the stored spec, which is that of the sweep's start.
        defaults: The workload's values, at the sweep's start, for parameters that the spec does not name.
        provenance: Versions, git commit, hardware and command at the sweep's start.
        environments: Environments of its trainings, the latest driver's last, by the id in the ledger's `environment`.
        code: The sha256 of each of the user's files that are stored in the sweep, by its name.
        files: The sha256 of each file that the spec names, such as a corpus, by its path. They are not stored.
        more_trials: The trials that were added later.
        more_replicates: The replicates that were added to each trial later, each time.
        retried: The failed trainings that were trained again, each time: replicates by trial. Their earlier rows are in
            `set_aside`.
        note, tags: What the user wants to remember of it; no result depends on them.
        bases: The trained weights that the sweep starts from and has stored: by their name, what the user gave.
        keep_weights: The trials whose final weights are kept at its end.
        warm_start: The sha256 of what its sampler was told before its first draw, in `warm_start.json`; empty if it was
            told nothing.
        sources: The sweeps that it was merged from; none for a sweep that was run.
        shards: The number of drivers that it is divided among, whose directories hold all but this record; 0 for none.
        shard: The trials that it holds of such a sweep; `None` for all trials.
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
    warm_start: Sha256 | Literal[""] = Field(default="", exclude_if=lambda sha256: not sha256)
    sources: tuple[Source, ...] = Field(default=(), exclude_if=lambda sources: not sources)
    shards: int = Field(default=0, ge=0, le=MOST_SHARDS, exclude_if=lambda shards: not shards)
    shard: Shard | None = Field(default=None, exclude_if=lambda shard: shard is None)

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, fields: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        found = validate(fields)
        if not isinstance(spec := fields["spec"], dict):
            return found
        # The sha256 of the stored values, not of the model, which may have gained fields since.
        if sha256_of(spec) != found.spec_sha256:
            raise ValueError("a spec that does not match its sha256")
        return found.model_copy(update={"spec": found._added.of(found.spec)})

    @field_serializer("spec")
    def _at_the_start(self, spec: Sweep) -> dict[str, Any]:
        return Extension(-self._added.trials, -self._added.replicates).of(spec).model_dump(mode="json")

    @property
    def _added(self) -> Extension:
        return Extension(self.more_trials, sum(self.more_replicates))


class Course(Record):
    """What `course.json` holds: whether a run has spent the sweep's budget, and the wall seconds of all runs."""

    finished: bool
    seconds: float = Field(ge=0, allow_inf_nan=False)


_RECORD = RecordFile(
    SWEEP_FILE, SweepRecord, "restore the file: a sweep's record is not edited, run a new sweep instead"
)
COURSE = RecordFile("course.json", Course, "write it anew with: attnsweep resume {}")


class SweepDirectory(SweepRecord):
    """One sweep and its place.

    Attributes:
        place: The directory, or the prefix in an object store.
        parts: The shards that had begun when it was opened, if it has shards.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    place: SkipValidation[Place] = Field(exclude=True)
    parts: SkipValidation[tuple["SweepDirectory", ...]] = Field(default=(), exclude=True)

    @staticmethod
    def is_there(where: PlaceName) -> bool:
        """Whether a directory holds a sweep, damaged or not."""
        return place_of(where, "--dir").has_text(SWEEP_FILE)

    @staticmethod
    def check_new(where: PlaceName, subject: str = "--dir", *, is_shard: bool = False) -> None:
        """Checks that a new sweep can be created in a directory, given for some argument. Touches nothing.

        What is in a shard's directory without a record was left there by a driver that was killed.

        Raises:
            UserError: If it holds another sweep, or anything else, or cannot be written.
        """
        place = place_of(where, subject)
        if SweepDirectory.is_there(place):
            resume = f"continue that sweep with: attnsweep resume {as_argument(place)}; or choose another --dir"
            raise UserError(
                subject,
                given=str(place),
                expected="a directory without a sweep",
                fix=resume if subject == "--dir" else "choose another",
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
        """Creates the directory and writes its record.

        Args:
            where: The new directory.
            spec: What is swept.
            defaults: The workload's values for what the spec does not name.
            environment: The environment that will train it, if known.
            code: The user's code that it runs, which is stored in it; `None` if it runs none.
            files: The sha256 of each file that the spec names, by its path.
            annotation: What the user wants to remember of it.
            base: The weights that it starts from, which are stored in it.
            sources: The sweeps that it is merged from.
            engine_reason: Why the environment has its engine.
            warm_start: What its sampler is told before its first draw, which is stored in it.
            shards: The number of drivers, for the record of a whole sweep; 0 for one driver, or for a shard.
            shard: The trials that it holds of the sweep in the folder above; `None` for all.

        Raises:
            UserError: If it holds another sweep, or anything else, or cannot be written. Of several processes at once
                exactly one creates its sweep.
            SpecError: If the spec holds what a file cannot.
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
            warm_start=warm_start.sha256 if warm_start else "",
            sources=sources,
            shards=shards,
            shard=shard,
        )
        _check_readable(directory)
        try:
            place.make()
            # The shards of a sweep have them: they are what runs.
            if code is not None and not directory.shards:
                # Before the record that names them. The names follow from the contents, so nothing is overwritten.
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
        """Reads a sweep's record.

        Raises:
            UserError: If there is none, it is damaged, or a merge into the directory has not ended.
        """
        found = cls.open_begun(where)
        if found.sources and not found.finished:
            refuse_cut_short(found.place, found.sources)
        return found._with_parts() if found.shards else found

    @classmethod
    def open_begun(cls, where: PlaceName) -> "SweepDirectory":
        """As `open`, and also where a merge has not ended."""
        place = place_of(where)
        try:
            stored = _RECORD.read(place)
        except OSError as error:
            raise UserError(
                "DIR",
                given=str(place),
                expected=f"a sweep directory, with a {SWEEP_FILE} in it",
                fix=nearest(
                    place, SWEEP_FILE, otherwise=f"give the directory that `attnsweep run` printed ({error.strerror})"
                ),
            ) from error
        return cls.model_construct(place=place, **dict(stored))

    def _with_parts(self) -> "SweepDirectory":
        shards = at_once(_open_shard, shards_of(self.place), self.place.n_at_once)
        parts = tuple(each for each in shards if each is not None)
        environments = dict(chain(self.environments.items(), *(each.environments.items() for each in parts)))
        return self.but(
            parts=parts, environments=environments, retried=tuple(chain.from_iterable(each.retried for each in parts))
        )

    @property
    def homes(self) -> tuple[Place, ...]:
        """The directories that drivers write to: its own, or those of its shards that have begun."""
        return tuple(each.place for each in self.parts) if self.shards else (self.place,)

    def whole(self) -> "SweepDirectory":
        """The sweep that it is a shard of; itself where that is not there, since it was copied alone."""
        above = place_of_whole(self.place)
        return SweepDirectory.open(above) if self.shard and SweepDirectory.is_there(above) else self

    def with_files(self) -> "SweepDirectory":
        """The directory that holds what the record names: its own, or any of its shards that have begun.

        Raises:
            UserError: If none has begun.
        """
        if self.shards and not self.parts:
            raise UserError(
                str(self.place),
                given=f"a sweep of {self.shards} shards, none of which has begun",
                expected="a shard",
                fix=f"attnsweep run SPEC --shard 0/{self.shards} --dir {as_argument(self.place)} --or-resume",
            )
        return self.parts[0] if self.shards else self

    @property
    def of_shard(self) -> Shard:
        """Which trials of the spec it holds."""
        return self.shard or WHOLE

    @property
    def own_spec(self) -> Sweep:
        """The spec with the number of trials that the directory is to hold."""
        return self.spec.but(trials=self.shard.n_of(self.spec.trials)) if self.shard else self.spec

    @property
    def name(self) -> str:
        """The sweep's identity, and which shard of it this is."""
        return f"{self.sweep}.{self.shard.folder}" if self.shard else self.sweep

    @property
    def shortfall(self) -> str:
        """Which shards have not begun or are not finished, in words; empty where all are finished, or there are none.

        Raises:
            UserError: If a `course.json` is damaged.
        """
        begun = {each.of_shard.index: each for each in self.parts}
        missing = [index for index in range(self.shards) if index not in begun]
        unfinished = [index for index, each in begun.items() if not each.finished]
        told = [("not begun", missing), ("not finished", unfinished)]
        words = [f"{len(indices)} {what} ({numbers_in_words(indices)})" for what, indices in told if indices]
        return f"of {self.shards} shards, {' and '.join(words)}" if words else ""

    def but(self, **changes: Any) -> "SweepDirectory":
        """The same with some fields changed. Writes nothing: see `record_as`."""
        return self.model_copy(update=changes)

    @property
    def environment(self) -> str | None:
        """The id of the latest environment; `None` if none is recorded."""
        return next(reversed(list(self.environments)), None)

    @property
    def engine(self) -> Engine:
        """What takes the steps of its trainings: one engine from its beginning to its end."""
        return self.engine_of(self.environment)

    @property
    def engine_reason(self) -> str:
        """Why it has this engine, as a clause; empty where that was not recorded."""
        return str(self.provenance.get("engine_reason", ""))

    @property
    def engine_in_words(self) -> str:
        """`vmapped: its steps would not repay compiling`."""
        return f"{self.engine}: {self.engine_reason}" if self.engine_reason else self.engine

    def engine_of(self, environment: str | None) -> Engine:
        """What took the steps of the trainings of one of its environments, by id."""
        found = self.environments.get(environment or "")
        return found.engine if found else "vmapped"

    def changes(self, environment: Environment) -> list[str]:
        """The differences between the latest environment and this one, in words."""
        return self.environments[self.environment].changes(environment) if self.environment else []

    def entering(self, environment: Environment) -> "SweepDirectory":
        """The sweep with this environment as its latest. Writes nothing: see `record_as`."""
        others = {name: each for name, each in self.environments.items() if name != environment.id}
        return self.but(environments={**others, environment.id: environment})

    def beside(self, environment: Environment) -> "SweepDirectory":
        """The sweep with this environment besides its latest. Writes nothing: see `record_as`."""
        return self.but(environments={environment.id: environment, **self.environments})

    @property
    def alike(self) -> frozenset[str]:
        """The ids of the environments that differ from the latest one in the type of machine at most."""
        return frozenset(name for name, each in self.environments.items() if not self.changes(each))

    def machine_of(self, environment: str | None) -> str | None:
        """The type of machine of one of its environments, by id; `None` where that is not recorded."""
        found = self.environments.get(environment or "")
        return found.machine if found else None

    @property
    def stages(self) -> tuple[int, ...]:
        """The replicates of a trial at the sweep's start and after each addition; empty where a rule decides.

        A trial that was told keeps its value in the study when replicates are added.
        """
        now = self.spec.replicates
        if not isinstance(now, int):
            return ()
        return tuple(accumulate(self.more_replicates, initial=now - self._added.replicates))

    @property
    def n_retried(self) -> int:
        """How often a failed training was trained again."""
        return sum(len(replicates) for each in self.retried for replicates in each.values())

    def retried_of(self, trial: int) -> list[frozenset[int]]:
        """The replicates of a trial that were trained again since the beginning, since the first time after, and so on.

        A trial that was told keeps its value in the study when failed trainings are trained again. It was told without
        those that were trained again since.
        """
        times = [each.get(trial, ()) for each in self.retried]
        return [frozenset(chain(*times[at:])) for at in range(len(times))]

    @property
    def all_sweeps(self) -> frozenset[str]:
        """The sweeps whose rows it holds."""
        return frozenset({self.sweep, *(each.sweep for each in self.sources)})

    @property
    def is_extended(self) -> bool:
        """Whether anything was added after the sweep's start."""
        return bool(self._added)

    def extended(self, more: Extension) -> "SweepDirectory":
        """The sweep with what is added to it. Writes nothing: see `record_as`."""
        replicates = (*self.more_replicates, *([more.replicates] if more.replicates else []))
        more_trials = self.more_trials + more.trials
        return self.but(spec=more.of(self.spec), more_trials=more_trials, more_replicates=replicates)

    def retrying(self, failed: Iterable[tuple[int, int]]) -> "SweepDirectory":
        """The sweep with these (trial, replicate) to be trained again. Writes nothing: see `record_as`."""
        by_trial: dict[int, tuple[int, ...]] = {}
        for trial, replicate in sorted(failed):
            by_trial[trial] = (*by_trial.get(trial, ()), replicate)
        return self.but(retried=(*self.retried, by_trial)) if by_trial else self

    def record_as(self, changed: "SweepDirectory") -> None:
        """Replaces the record, which the caller has read under the writer's lock. Mends a damaged `course.json`."""
        try:
            course = self._course()
        except DamagedRecordError:
            course = None
        if course is None or changed.spec != self.spec or changed.retried != self.retried:
            # In this order: a sweep that is not finished and has nothing to do is finished by the next `resume`.
            seconds = course.seconds if course else 0.0
            COURSE.write(self.place, Course(finished=False, seconds=seconds))
        if changed != self:
            _RECORD.write(self.place, changed)

    def record(self) -> str:
        """The text of `sweep.json`."""
        return self.place.read_text(SWEEP_FILE)

    @property
    def finished(self) -> bool:
        """Whether a run has spent the sweep's budget. Raises UserError if `course.json` is damaged."""
        return self._course().finished

    @property
    def seconds_spent(self) -> float:
        """Wall seconds of all runs that ended regularly. Raises UserError if `course.json` is damaged."""
        return self._course().seconds

    def record_run(self, *, finished: bool, seconds: float) -> None:
        """Records the end of a run: whether the budget is spent, and the run's seconds."""
        COURSE.write(self.place, Course(finished=finished, seconds=self.seconds_spent + seconds))

    def _course(self) -> Course:
        if self.shards:
            courses = at_once(SweepDirectory._course, self.parts, self.place.n_at_once)
            finished = len(courses) == self.shards and all(each.finished for each in courses)
            # Shards run side by side.
            return Course(finished=finished, seconds=max((each.seconds for each in courses), default=0.0))
        try:
            return COURSE.read(self.place)
        except FileNotFoundError:
            return Course(finished=False, seconds=0.0)

    def text(self) -> str:
        """The record of this identity, as `sweep.json` holds it."""
        return _RECORD.text(self)


def _open_shard(place: Place) -> SweepDirectory | None:
    """A shard; `None` where a driver was killed before its record was there."""
    return SweepDirectory.open_begun(place) if SweepDirectory.is_there(place) else None


def code_file(sha256: str) -> str:
    """The name in a sweep directory of a user's file with this content."""
    return f"{_CODE_FOLDER}/{sha256}.py"


def base_file(name: str) -> str:
    """The name in a sweep directory of the weights of this name."""
    return f"{_BASES_FOLDER}/{name}.json"


def _check_readable(directory: SweepDirectory) -> None:
    """Checks that a record can be read back, before it is written.

    Raises:
        SpecError: If not.
    """
    try:
        _RECORD.parse(directory.text())
    except ValueError as error:
        raise SpecError(
            "SPEC",
            given=directory.spec.name,
            expected="a sweep that can be read back from a file: text in UTF-8, paths too",
            fix=f"correct the text, or rename the file that it names ({reason_of(error)})",
        ) from error


def _taken(place: Place, subject: str = "--dir") -> UserError:
    return UserError(subject, given=str(place), expected="a new or empty directory", fix="choose another")
