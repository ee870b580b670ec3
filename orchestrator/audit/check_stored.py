"""Checks the files that a sweep stores beside its tables, its study and its course, each file by its digest."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from pydantic import ConfigDict

from attnsweep.orchestrator.audit.problems import Problem
from attnsweep.orchestrator.inspection.kept_weights import FOLDER as WEIGHTS
from attnsweep.orchestrator.running.warm_start import told_trials
from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.place import CHECKPOINTS, digest
from attnsweep.orchestrator.storage.promise import PROMISE
from attnsweep.orchestrator.storage.record import DamagedRecordError, Record, RecordFile
from attnsweep.orchestrator.storage.sources import source_file
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.errors import UserError

_NAMED_BY_DIGEST = {
    CHECKPOINTS: "continue with: attnsweep resume DIR, which begins its pack again",
    WEIGHTS: "remove the file: the weights are then trained again",
}
"""Folders of Parquet files whose names end with their digests: what to do about a damaged file, by folder."""
_DISK = "check its disk, and your access to it"


class _AnyRecord(Record):
    """A record of any kind, of which only the digest is checked."""

    model_config = ConfigDict(extra="allow")


def check_stored(directory: SweepDirectory) -> tuple[Problem, ...]:
    """Finds stored files that have changed since they were written: checkpoints, weights, forecasts, warm starts,
    records of merged sweeps."""
    return tuple(_problems(directory))


def _problems(directory: SweepDirectory) -> Iterator[Problem]:
    for folder in _NAMED_BY_DIGEST:
        yield from _named_by_digest(directory, folder)
    # A missing forecast file is no problem, because most sweeps have no forecast.
    with suppress(FileNotFoundError):
        yield from _record(directory, PROMISE)
    try:
        told_trials(directory)
    except UserError as damage:
        yield Problem(f"{damage.subject}: {damage.given}", damage.fix)
    for source in directory.sources:
        file, fix = source_file(source.sweep), f"copy it from {source.place}"
        try:
            yield from _record(directory, RecordFile(file, _AnyRecord, fix))
        except FileNotFoundError:
            yield Problem(f"{directory.place}/{file}: no such file", fix)


def _named_by_digest(directory: SweepDirectory, folder: str) -> Iterator[Problem]:
    place = directory.place
    for name in place.names(folder) if place.has_folder(folder) else ():
        path = place.file_name(folder, name)
        try:
            with place.answering(), place.open_file(folder, name) as file:
                is_as_written = digest(file) == name.rpartition("-")[2]
        except FileNotFoundError:
            # A running sweep removes the checkpoints of ended packs, so a listed checkpoint may be missing.
            continue
        except UserError as refusal:
            yield Problem(f"{refusal.subject}: {refusal.given}", refusal.fix)
        except OSError as error:
            yield Problem(f"{path}: {error.strerror}", _DISK)
        else:
            if not is_as_written:
                yield Problem(f"{path}: a file that does not match its checksum", _NAMED_BY_DIGEST[folder])


def _record(directory: SweepDirectory, file: RecordFile[Any]) -> Iterator[Problem]:
    try:
        file.read(directory.place)
    except (DamagedRecordError, StoreError) as damage:
        yield Problem(f"{damage.subject}: {damage.given}", damage.fix)
