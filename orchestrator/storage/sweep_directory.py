import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from types import MappingProxyType

from pydantic import ConfigDict, Field, SkipValidation

from attnsweep.orchestrator.storage.annotation import Annotation
from attnsweep.orchestrator.storage.environment import Environment, current_provenance, new_identity
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.output_file import refused
from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.storage.place_names import PlaceName, as_argument, nearest, place_of
from attnsweep.orchestrator.storage.record import DamagedRecordError, Record, RecordFile, reason_of
from attnsweep.orchestrator.storage.shards import Shard
from attnsweep.orchestrator.storage.sources import WARM_START, WarmStart
from attnsweep.orchestrator.storage.sweep_record import SweepRecord
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import SpecError, UserError
from attnsweep.workloads.user_code import UserCode

SWEEP_FILE = "sweep.json"
STUDY_FILE = "study.journal"
REPORT_FILE = "report/report.html"


class Course(Record):
    """Whether the budget is used up, and the wall-clock seconds of all runs together."""

    finished: bool
    seconds: float = Field(ge=0, allow_inf_nan=False)


_RECORD = RecordFile(
    SWEEP_FILE,
    SweepRecord,
    "restore the file from a copy: to change a sweep, run a new one instead of editing its record",
)
COURSE = RecordFile("course.json", Course, "write it anew with: attnsweep resume {}")


class SweepDirectory(SweepRecord):
    """A sweep's record, `sweep.json`, with its place."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    place: SkipValidation[Place] = Field(exclude=True)

    @staticmethod
    def is_there(where: PlaceName) -> bool:
        return place_of(where, "--dir").has_text(SWEEP_FILE)

    @staticmethod
    def check_new(where: PlaceName, subject: str = "--dir") -> None:
        """Raises UserError if the directory holds anything or cannot be written. Writes nothing."""
        place = place_of(where, subject)
        if SweepDirectory.is_there(place):
            resume = f"continue that sweep with: attnsweep resume {as_argument(place)}; or choose another --dir"
            fix = resume if subject == "--dir" else "choose another directory"
            raise UserError(subject, given=str(place), expected="a directory that contains no sweep yet", fix=fix)
        if not place.is_vacant():
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
        annotation: Annotation | None = None,
        engine_reason: str = "",
        warm_start: WarmStart | None = None,
        shard: Shard | None = None,
    ) -> "SweepDirectory":
        """Writes `sweep.json`, the user's code, weights that trainings start from, and earlier trials for the sampler.

        Args:
            defaults: The workload's values of the parameters that the spec does not name.
            environment: The one that will train the sweep, if known.
            files: The sha256 of each file that the spec names, by the file's path.
            engine_reason: Why the environment has its engine.

        Raises:
            UserError: If the directory holds another sweep, or anything else, or cannot be written. Of several
                concurrent processes exactly one creates its sweep.
            SpecError: If the spec cannot be stored in a file.
        """
        place = place_of(where, "--dir")
        cls.check_new(place)
        directory = cls(
            place=place,
            sweep=new_identity(spec.name),
            spec=spec,
            spec_sha256=spec.sha256(),
            defaults=defaults,
            provenance=current_provenance()
            | {"engine_reason": engine_reason}
            | ({"code_folder": code.folder} if code else {}),
            environments={environment.id: environment} if environment else {},
            code=dict(code.sha256) if code else {},
            files=files,
            warm_start=warm_start.sha256 if warm_start else "",
            shard=shard,
            **vars(annotation or Annotation()),
        )
        try:
            _RECORD.parse(directory.text())
        except ValueError as error:
            # A record that could not be read back later is refused here, before anything is written.
            expected = "a sweep whose texts and paths are UTF-8, so that it can be stored in a file"
            fix = f"correct the text, or rename the file that it names ({reason_of(error)})"
            raise SpecError("SPEC", given=directory.spec.name, expected=expected, fix=fix) from error
        try:
            place.make()
            if code is not None:
                # Code files are written before the record, which names them. The name of a code file is the hash of its
                # content, so the write cannot overwrite a different file.
                for name, text in code.texts.items():
                    place.put_text(code_file(name, code.sha256[name]), text)
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
        """Reads `sweep.json`.

        Raises:
            UserError: If there is no record, or it is damaged.
        """
        place = place_of(where)
        try:
            stored = _RECORD.read(place)
        except OSError as error:
            expected = f"a sweep directory, which contains a file {SWEEP_FILE}"
            fix = nearest(place, SWEEP_FILE, f"give the directory that `attnsweep run` printed ({error.strerror})")
            raise UserError("DIR", given=str(place), expected=expected, fix=fix) from error
        return cls.model_construct(place=place, **dict(stored))

    def record_as(self, changed: "SweepDirectory") -> None:
        """Replaces the sweep's stored record by a changed one. If `course.json`, which stores whether the sweep is
        finished, is damaged, it is replaced too: by one that calls the sweep unfinished, with 0 seconds spent.

        The caller must have held the sweep's lock since before it read the record.
        """
        try:
            course = self._course()
        except DamagedRecordError:
            course = None
        if course is None or changed.spec != self.spec or changed.retried != self.retried:
            # In `course.json` (whether the sweep is finished, and its seconds), the sweep is marked as unfinished
            # before its record is changed. If the process is killed in between, the old record is still in place, so
            # the next `resume` of a finished sweep finds nothing to train and marks it as finished again.
            seconds = course.seconds if course else 0.0
            COURSE.write(self.place, Course(finished=False, seconds=seconds))
        if changed != self:
            _RECORD.write(self.place, changed)

    def record(self) -> str:
        return self.place.read_text(SWEEP_FILE)

    @property
    def finished(self) -> bool:
        """Whether the budget is used up. Raises UserError if `course.json` is damaged."""
        return self._course().finished

    @property
    def seconds_spent(self) -> float:
        """Of all runs that were not killed. Raises UserError if `course.json` is damaged."""
        return self._course().seconds

    def record_run(self, *, finished: bool, seconds: float) -> None:
        COURSE.write(self.place, Course(finished=finished, seconds=self.seconds_spent + seconds))

    def _course(self) -> Course:
        return COURSE.read_if_there(self.place) or Course(finished=False, seconds=0.0)

    def text(self) -> str:
        return _RECORD.text(self)


def are_parts(directories: Sequence[SweepDirectory]) -> bool:
    """Whether they are different shards of one sweep, whose trials thus have different numbers."""
    shards = {each.shard for each in directories if each.shard is not None}
    sweeps = {(each.spec_sha256, each.of_shard.count) for each in directories}
    return len(shards) == len(directories) and len(sweeps) == 1


def code_file(name: str, sha256: str) -> str:
    """A user's file is stored under this name: Python as it is, others in base64."""
    return f"code/{sha256}{'.py' if name.endswith('.py') else '.base64'}"


def _taken(place: Place, subject: str = "--dir") -> UserError:
    return UserError(subject, given=str(place), expected="a new or empty directory", fix="choose another directory")


def sweeps_below(place: Place, pass_over: Callable[[OSError], object]) -> Iterator[tuple[Place, int]]:
    """Yields each sweep in a folder or below it, with the bytes of its files.

    Reads no file. `pass_over` gets the error for each folder that cannot be read.

    Raises:
        UserError: If there is no such folder.
    """
    sizes = place.sizes(pass_over)
    is_file = isinstance(place, LocalFolder) and place.path.is_file()
    if is_file or (not sizes and place.is_vacant()):
        raise UserError("DIR", given=str(place), expected="a folder that contains sweeps", fix="check the path")
    folders = {PurePosixPath(path).parent for path in sizes if PurePosixPath(path).name == SWEEP_FILE}
    for folder in sorted(folders):
        # Copies of a sweep's record that MLflow keeps, in folders `RUN_ID/artifacts`, are no sweeps.
        is_in_mlflow = folder.name == "artifacts" and re.fullmatch(r"[0-9a-f]{32}", folder.parent.name)
        if folders.isdisjoint(folder.parents) and not is_in_mlflow:
            n_bytes = sum(size for path, size in sizes.items() if PurePosixPath(path).is_relative_to(folder))
            yield place if folder == PurePosixPath() else place_of(f"{place}/{folder}"), n_bytes
