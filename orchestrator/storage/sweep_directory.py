import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from itertools import accumulate, chain, groupby
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, SkipValidation

from attnsweep.orchestrator.storage.copies import name_of
from attnsweep.orchestrator.storage.environment import Engine, Environment, current_provenance, new_identity
from attnsweep.orchestrator.storage.files import check_makeable, is_vacant, sizes, write_text
from attnsweep.orchestrator.storage.locks import Lock
from attnsweep.orchestrator.storage.output_file import refusing
from attnsweep.orchestrator.storage.place_names import BULK, PlaceName, as_argument, place_of
from attnsweep.orchestrator.storage.record import Record, RecordFile, reason_of, unless_empty
from attnsweep.orchestrator.storage.run_records import PROGRESS, Progress, Replays
from attnsweep.orchestrator.storage.shards import WHOLE, Shard
from attnsweep.orchestrator.storage.sources import WARM_START, WarmStart
from attnsweep.search_spaces.claim import Claim
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import SpecError, UserError
from attnsweep.workloads.user_code import UserCode

SWEEP_FILE = "sweep.json"
STUDY_FILE = "study.journal"
REPORT_FILE = "report/report.html"
CodeFile = Annotated[str, Field(pattern=r"^[^/.\x00-\x1f][^/\x00-\x1f]*(/[^/.\x00-\x1f][^/\x00-\x1f]*)*$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Number = Annotated[int, Field(ge=0)]


class Extension(Record):
    """What one `resume` added: trials, replicates of every trial, and by trial the failed ones that run again, whose
    rows are in the folder `set_aside`."""

    trials: Number = unless_empty(0)
    replicates: Number = unless_empty(0)
    retried: Mapping[Number, tuple[Number, ...]] = unless_empty({})

    def of(self, spec: Sweep) -> Sweep:
        """Raises UserError if a `Sequential` rule or a pruner has counted on the replicates that trials have."""
        replicates = spec.replicates
        is_rule = not isinstance(replicates, int)
        if (self.replicates and (is_rule or spec.pruner is not None)) or (self.retried and is_rule):
            subject = "--replicates" if self.replicates else "--retry-failed"
            expected = "a fixed number of replicates, and to add some no pruner: they have judged trials by theirs"
            raise UserError(subject, given=replicates, expected=expected, fix="add trials, or run a new sweep")
        if isinstance(replicates, int):
            replicates += self.replicates
        return spec.but(trials=spec.trials + self.trials, replicates=replicates)

    def retrying(self, failed: Iterable[tuple[int, int]]) -> "Extension":
        """`failed`: (trial, replicate)."""
        pairs = groupby(sorted(failed), key=itemgetter(0))
        by_trial = {trial: tuple(replicate for _, replicate in group) for trial, group in pairs}
        return self.model_copy(update={"retried": by_trial})

    def __bool__(self) -> bool:
        return bool(self.trials or self.replicates or self.retried)


class SweepDirectory(Record):
    """A sweep's record, `sweep.json`, with its place.

    Attributes:
        sweep: The sweep's identity, also in the ledger's column `sweep` and as the name of MLflow's parent run.
        given: The spec at the start; `spec_sha256` is its hash.
        extensions: What was added later, in order.
        defaults: Of the workload's parameters that the spec does not name, as they were at the start.
        provenance: Versions, git commit, hardware and command at the start.
        environments: By the id in the ledger's column `environment`. The last one is the latest driver's.
        code: The sha256 of each of the user's files that the sweep stores, by name.
        files: The sha256 of each file that the spec names, such as a corpus, by path. They are not stored.
        warm_start: The sha256 of the earlier trials in `warm_start.json`; empty without any.
        keep_weights: The trials whose final weights are kept.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, populate_by_name=True)

    place: SkipValidation[Path] = Field(default=Path(), exclude=True)
    sweep: str
    given: Sweep = Field(alias="spec")
    spec_sha256: str
    extensions: tuple[Extension, ...] = unless_empty(())
    defaults: Mapping[str, Scalar]
    provenance: Mapping[str, Any] = Field(default_factory=current_provenance)
    environments: Mapping[str, Environment] = {}
    code: Mapping[CodeFile, Sha256] = unless_empty({})
    files: Mapping[str, Sha256] = unless_empty({})
    warm_start: Sha256 | Literal[""] = unless_empty("")
    shard: Shard = Field(default=WHOLE, exclude_if=WHOLE.__eq__)
    note: str = unless_empty("")
    tags: Mapping[str, str] = unless_empty({})
    keep_weights: tuple[Number, ...] = unless_empty(())
    claim: Claim | None = unless_empty(None)

    @staticmethod
    def is_there(where: PlaceName) -> bool:
        return (place_of(where, "--dir") / SWEEP_FILE).is_file()

    @staticmethod
    def check_new(where: PlaceName) -> None:
        """Raises UserError if the directory holds anything or cannot be written. Writes nothing."""
        place = place_of(where, "--dir")
        if SweepDirectory.is_there(place):
            fix = f"continue that sweep with: attnsweep resume {as_argument(place)}; or choose another --dir"
            raise UserError("--dir", given=name_of(place), expected="a directory that contains no sweep yet", fix=fix)
        if not is_vacant(place):
            expected, fix = "a new or empty directory", "choose another directory"
            raise UserError("--dir", given=name_of(place), expected=expected, fix=fix)
        with refusing(place, "--dir", "directory"):
            check_makeable(place)

    @classmethod
    def create(
        cls,
        where: PlaceName,
        spec: Sweep,
        defaults: Mapping[str, Scalar],
        code: UserCode | None = None,
        warm_start: WarmStart | None = None,
        **fields: Any,
    ) -> Self:
        """Writes `sweep.json`, the user's code, and earlier trials for the sampler. Of several processes one succeeds.

        `fields` are others of the record. Raises UserError if the directory holds anything or cannot be written, or if
        the spec cannot be stored in a file."""
        place = place_of(where, "--dir")
        cls.check_new(place)
        fields |= {"code": code.sha256} if code else {}
        fields |= {"warm_start": warm_start.sha256} if warm_start else {}
        try:
            directory = cls(
                sweep=new_identity(spec.name), given=spec, spec_sha256=spec.sha256(), defaults=defaults, **fields
            ).but(place=place)
            text = _RECORD.text(directory)
            _RECORD.parse(text)
        except ValueError as error:
            expected = "a sweep whose texts and paths are UTF-8, so that it can be stored in a file"
            fix = f"correct the text, or rename the file that it names ({reason_of(error)})"
            raise SpecError("SPEC", given=spec.name, expected=expected, fix=fix) from error
        with refusing(place, "--dir", "directory"):
            place.mkdir(parents=True, exist_ok=True)
            with closing(Lock(place, "run")):
                cls.check_new(place)
                # Code comes before the record that names it.
                for name, content in code.texts.items() if code else ():
                    write_text(place, code_file(name, directory.code[name]), content)
                if warm_start is not None:
                    WARM_START.write(place, warm_start)
                write_text(place, SWEEP_FILE, text)
        return directory

    @classmethod
    def open(cls, where: PlaceName) -> "SweepDirectory":
        """Raises UserError if there is no record, or it is damaged."""
        place = place_of(where)
        try:
            return _RECORD.read(place).but(place=place)
        except (FileNotFoundError, NotADirectoryError) as error:
            expected = f"a sweep directory, which contains a file {SWEEP_FILE}"
            fix = f"give the directory that `attnsweep run` printed ({error.strerror})"
            raise UserError("DIR", given=name_of(place), expected=expected, fix=fix) from error

    def but(self, **changes: Any) -> Self:
        """Writes nothing: `record_as` stores the copy."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return self.model_construct(**(fields | changes))  # type: ignore[return-value]

    def record_as(self, changed: "SweepDirectory") -> None:
        """Replaces the stored record. The caller must have held the sweep's lock since before it read it."""
        if changed.extensions != self.extensions:
            # First, so that a driver killed in between leaves no sweep that is called finished.
            self.record_run(finished=False, seconds=0.0)
        if changed != self:
            _RECORD.write(self.place, changed)

    @property
    def progress(self) -> Progress:
        """A damaged one counts as missing, and `resume` writes it anew."""
        return PROGRESS.read_if_sound(self.place) or Progress()

    @property
    def finished(self) -> bool:
        return self.progress.finished

    def record_run(self, *, finished: bool, seconds: float, n_asked: int = 0, replays: Replays | None = None) -> None:
        """`seconds`: of the run that ends."""
        seconds += self.progress.seconds
        PROGRESS.write(self.place, Progress(finished=finished, seconds=seconds, n_asked=n_asked, replays=replays))

    @cached_property
    def spec(self) -> Sweep:
        """With the trials and replicates that were added later."""
        spec = self.given
        for extension in self.extensions:
            spec = extension.of(spec)
        return spec

    @cached_property
    def own_spec(self) -> Sweep:
        """With the number of trials that this directory holds."""
        return self.spec.but(trials=self.shard.n_of(self.spec.trials))

    @property
    def stages(self) -> tuple[int, ...]:
        """Replicates per trial at the start and after each addition; empty with a `Sequential` rule."""
        first = self.given.replicates
        added = [extension.replicates for extension in self.extensions if extension.replicates]
        return tuple(accumulate(added, initial=first)) if isinstance(first, int) else ()

    @property
    def retried(self) -> tuple[Mapping[int, tuple[int, ...]], ...]:
        """For each `resume --retry-failed`, the replicates by trial."""
        return tuple(extension.retried for extension in self.extensions if extension.retried)

    def retried_of(self, trial: int) -> frozenset[int]:
        """The trial's replicates that a `resume --retry-failed` trained again."""
        return frozenset(chain(*(by_trial.get(trial, ()) for by_trial in self.retried)))

    @property
    def environment(self) -> str | None:
        """The id of the latest one; `None` if none is recorded."""
        return next(reversed(list(self.environments)), None)

    @property
    def engine(self) -> Engine:
        """It never changes during a sweep."""
        return self.environment_of(self.environment).engine

    @property
    def engine_in_words(self) -> str:
        """Such as `eager: its steps would not repay compiling`."""
        reason = self.provenance.get("engine_reason")
        return f"{self.engine}: {reason}" if reason else self.engine

    def environment_of(self, environment: str | None) -> Environment:
        """One without versions if the record lacks this id."""
        return self.environments.get(environment or "", Environment(versions={}))

    def changes(self, environment: Environment) -> list[str]:
        """How its versions differ from those of the last run; empty if there was none."""
        return self.environment_of(self.environment).changes(environment) if self.environment else []

    def entering(self, environment: Environment) -> Self:
        """With this environment as the latest."""
        others = {name: other for name, other in self.environments.items() if name != environment.id}
        return self.but(environments={**others, environment.id: environment})

    def beside(self, environment: Environment) -> Self:
        """With this environment added, but not as the latest."""
        return self.but(environments={environment.id: environment, **self.environments})

    @property
    def alike(self) -> frozenset[str]:
        """The ids of the environments with the versions of the latest, on any machine."""
        return frozenset(name for name, other in self.environments.items() if not self.changes(other))


_RECORD = RecordFile(
    SWEEP_FILE,
    SweepDirectory,
    "restore the file from a copy: to change a sweep, run a new one instead of editing its record",
)


def are_parts(directories: Sequence[SweepDirectory]) -> bool:
    """Whether they are different shards of one sweep, so that their trials have different numbers."""
    sweeps = {(each.spec_sha256, each.shard.count) for each in directories}
    return len({each.shard.index for each in directories}) == len(directories) and len(sweeps) == 1


def code_file(name: str, sha256: str) -> str:
    """Where a user's file is stored: Python as it is, others in base64."""
    return f"code/{sha256}{'.py' if name.endswith('.py') else '.base64'}"


def sweeps_below(where: PlaceName) -> Iterator[tuple[Path, int]]:
    """Each sweep in a folder or below it, with the bytes of its files. Raises UserError if there is no such folder."""
    place = place_of(where, without=BULK)
    n_bytes_of = sizes(place)
    if not n_bytes_of and not place.is_dir():
        raise UserError("DIR", given=name_of(place), expected="a folder that contains sweeps", fix="check the path")
    folders = {PurePosixPath(path).parent for path in n_bytes_of if PurePosixPath(path).name == SWEEP_FILE}
    for folder in sorted(folders):
        # Copies of a sweep's record that MLflow keeps, in folders `RUN_ID/artifacts`, are no sweeps.
        is_in_mlflow = folder.name == "artifacts" and re.fullmatch(r"[0-9a-f]{32}", folder.parent.name)
        if folders.isdisjoint(folder.parents) and not is_in_mlflow:
            n_bytes = sum(size for path, size in n_bytes_of.items() if PurePosixPath(path).is_relative_to(folder))
            yield place_of(f"{name_of(place)}/{folder}", without=BULK) if folder.name else place, n_bytes
