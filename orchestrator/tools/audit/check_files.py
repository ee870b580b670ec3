"""Checks the bytes of a sweep: the ledger's files, and what is stored beside them."""

from collections.abc import Iterator
from pathlib import Path

from attnsweep.orchestrator.inspection.kept_weights import FOLDER as WEIGHTS
from attnsweep.orchestrator.ledger.fragments import TABLES
from attnsweep.orchestrator.ledger.snapshot import examine
from attnsweep.orchestrator.running.warm_start import told_trials
from attnsweep.orchestrator.storage.copies import CHECKPOINTS
from attnsweep.orchestrator.storage.errors import in_words
from attnsweep.orchestrator.storage.files import digest, open_file, parquet_names
from attnsweep.orchestrator.storage.run_records import PROGRESS
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tools.audit.problems import COPIED, RESUME, Check, Problem
from attnsweep.workloads.errors import UserError

_NAMED_BY_DIGEST = {
    CHECKPOINTS: "continue with: attnsweep resume DIR, which begins its pack again",
    WEIGHTS: "remove the file: the weights are then trained again",
}
"""What to do about a damaged file, by folder; the names of their Parquet files end with their digests."""


def check_files(directory: SweepDirectory, *, finished: bool) -> Check:
    place = directory.place
    problems = [*_ledger(directory, finished=finished), *check_stored(directory)]
    n_files = sum(len(parquet_names(place / table)) for table in TABLES)
    return Check(f"files {n_files}" + ("" if problems else ", unchanged since they were written"), problems)


def _ledger(directory: SweepDirectory, *, finished: bool) -> Iterator[Problem]:
    """Damaged files, files of other sweeps, and left-over files."""
    place, found = directory.place, examine(directory.place)
    yield from (Problem.of(fault, RESUME) for fault in found.damaged.values())
    for path in found.sound.leftovers() if finished else ():
        if path.stem not in found.damaged:
            what = f"{path}: left over by a commit or a merge that was cut short"
            yield Problem(what, "remove it with: attnsweep compact DIR")
    for name, opened in found.sound.files["trainings"].items():
        if (spec := opened.stamp.spec_sha256) != directory.spec_sha256:
            what = f"{place / 'trainings' / name}.parquet: rows of another sweep, of the spec {spec[:12]}"
            yield Problem(what, COPIED)


def check_stored(directory: SweepDirectory) -> list[Problem]:
    """Checkpoints, weights, progress and warm starts that have changed since they were written."""
    problems = [problem for folder in _NAMED_BY_DIGEST for problem in _named_by_digest(directory.place, folder)]
    for read in (lambda: PROGRESS.read(directory.place), lambda: told_trials(directory)):
        try:
            read()
        except FileNotFoundError:
            continue
        except UserError as damage:
            problems.append(Problem.of(damage))
    return problems


def _named_by_digest(place: Path, folder: str) -> Iterator[Problem]:
    for name in parquet_names(place / folder):
        path = place / folder / f"{name}.parquet"
        try:
            with open_file(path) as file:
                if digest(file) != name.rpartition("-")[2]:
                    yield Problem(f"{path}: a file that does not match its checksum", _NAMED_BY_DIGEST[folder])
        except FileNotFoundError:
            continue  # a running sweep removes the checkpoints of trainings that have ended
        except OSError as error:
            yield Problem(in_words(error), "check the disk, and your access to it")
