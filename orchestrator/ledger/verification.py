"""Checks that the ledger's files are unchanged since they were written, and sets damaged ones aside."""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from attnsweep.orchestrator.ledger.fragments import (
    TABLES,
    DamagedFileError,
    OpenFile,
    Snapshot,
    clashing,
    counting_names,
    damaged,
    fragment_names,
    open_file,
    reason,
    require_ledger,
)
from attnsweep.orchestrator.storage.errors import unreadable
from attnsweep.orchestrator.storage.place import ASIDE, Place, at_once, digest
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.workloads.errors import UserError


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A fault of a file.

    Attributes:
        file, what: The file, and the problem in words.
        is_left_over: Whether the file is harmless, but no longer needed. The next writer removes it.
    """

    file: str
    what: str
    is_left_over: bool = False

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


@dataclass(frozen=True, slots=True)
class Examination:
    """The fragments of a ledger.

    Attributes:
        sound: The opened files, by fragment and table, of committed fragments whose files are unchanged.
        damaged: By fragment with a missing, unreadable or altered file: the error of its first such file.
    """

    sound: Mapping[str, Mapping[str, OpenFile]]
    damaged: Mapping[str, DamagedFileError]


def verify(place: Place, spec_sha256: str) -> list[FileProblem]:
    """Checks every file of a ledger. Changes nothing.

    Each file must be readable and unchanged, belong to this sweep and have the right columns. A file that is no longer
    needed is a problem too. No writer may be at work.

    Raises:
        UserError: If there is no ledger, a newer version has written a file, a file cannot be read now, or the place
            does not answer.
    """
    require_ledger(place)
    examined = examine(place)
    return [
        *(FileProblem(fault.subject, str(fault.given)) for fault in examined.damaged.values()),
        *_left_over(place, {*examined.sound, *examined.damaged}),
        *(
            FileProblem(
                place.file_name(table, name), f"rows of another sweep, of the spec {file.stamp.spec_sha256[:12]}"
            )
            for name, files in examined.sound.items()
            for table, file in files.items()
            if file.stamp.spec_sha256 != spec_sha256
        ),
    ]


def examine(place: Place) -> Examination:
    """Reads the files of all commits, and tells sound fragments from damaged ones. Merged files are not read.

    Raises:
        UserError: If a newer version has written a file, a file cannot be read now, or the place does not answer.
    """
    faults: dict[str, DamagedFileError] = {}

    def check(table: str, digests: Mapping[str, str | None]) -> dict[str, OpenFile]:
        """Returns the sound files of a table, and adds the others to `faults`."""
        files = at_once(lambda name: _check(place, table, name, digests[name]), digests, place.n_at_once)
        checked = dict(zip(digests, files, strict=True))
        for name, file in checked.items():
            if isinstance(file, DamagedFileError):
                faults.setdefault(name, file)
        return {name: file for name, file in checked.items() if isinstance(file, OpenFile)}

    trainings = check("trainings", {name: name.rpartition("-")[2] for name in fragment_names(place)})
    counting = counting_names(trainings)
    tables = {"trainings": trainings}
    for table in TABLES[:-1]:
        if place.has_folder(table):
            tables[table] = check(table, {name: trainings[name].stamp.digests.get(table) for name in counting})
    for table, files in tables.items():
        for name, wrong in clashing({name: files[name] for name in counting if name in files}).items():
            faults.setdefault(name, damaged(place, place.file_name(table, name), wrong))
    replaced = {name for file in trainings.values() for name in file.stamp.replaces}
    return Examination(
        sound={
            name: {table: files[name] for table, files in tables.items()} for name in counting if name not in faults
        },
        damaged={name: fault for name, fault in faults.items() if name not in replaced},
    )


@contextmanager
def naming_damage(places: Sequence[Place]) -> Iterator[None]:
    """If a damaged file causes an error inside the context, an error that names the file is raised instead.

    Raises:
        UserError: If a file is damaged or cannot be read now, or if Arrow or DuckDB refuse the tables.
    """
    try:
        yield
    except Exception as error:
        # A UserError usually concerns the user's query, and is raised again at once. But if it quotes an IOError of
        # DuckDB, a file may be damaged, so the files are checked.
        if isinstance(error, UserError) and "IOError" not in str(error):
            raise
        for fault in (fault for place in places for fault in examine(place).damaged.values()):
            raise fault from error
        ledgers = ", ".join(map(str, places))
        # DuckDB may have met an error of the operating system, and quote only its number in the text of its own error.
        # From this number, an OSError is made.
        quoted = re.search(r"IOError.*\[errno (\d+)\]", str(error))
        number = int(quoted[1]) if quoted else None
        failure = error if isinstance(error, OSError) or number is None else OSError(number, os.strerror(number))
        if isinstance(failure, OSError):
            # Some OSErrors usually mean damage. But `examine` has just found no damaged file, so the message only says
            # that a file cannot be read now.
            raise unreadable(failure.filename or ledgers, failure) from error
        if type(error).__module__.partition(".")[0] in ("pyarrow", "duckdb", "_duckdb"):
            raise UserError(
                ledgers,
                given=f"a file that cannot be read: {type(error).__name__}: {reason(error)}",
                expected="a ledger that attnsweep wrote",
                fix="check the ledger with: attnsweep audit DIR",
            ) from error
        raise


def set_aside(place: Place, name: str) -> None:
    """Moves a fragment to `set_aside`, so that its trainings do not count any more. Idempotent."""
    # A commit counts as long as its file of the table `trainings` is in place. This file is moved last: if the process
    # is killed before, the commit still counts, and the next call of this function moves the rest.
    for table in TABLES:
        if name in place.names(table):
            place.set_aside(table, name)


def set_damage_aside(place: Place) -> dict[str, str]:
    """Moves all damaged fragments to `set_aside`; returns a message for each. Only for the holder of the lock."""
    messages: dict[str, str] = {}
    # After damaged files have been moved, the check is repeated. If one of them was a merge of earlier files, these
    # earlier files count again, and they may be damaged too.
    while suspects := examine(place).damaged:
        # Only damage that is found a second time counts, because a store or a network may once return a wrong answer.
        for name, fault in examine(place).damaged.items():
            if name in suspects:
                set_aside(place, name)
                messages[name] = (
                    f"{fault.subject}: {fault.given}; set aside in {place}/{ASIDE}, its trainings run again"
                )
    return messages


def set_doubles_aside(place: Place, snapshot: Snapshot) -> dict[str, str]:
    """Moves the smaller of two fragments that hold the same training to `set_aside`; returns a message for each.

    A training is in two fragments if a writer that has lost its lock still completes an upload, or if a disk grants a
    lock to two hosts. Only the holder of the sweep's lock may call it.
    """
    messages: dict[str, str] = {}
    if not _n_doubled(place, snapshot):
        return messages
    kept_keys: set[tuple[str, int, int]] = set()
    rows = snapshot.rows()
    for name in sorted(rows, key=lambda name: (-rows[name], name)):
        keys = set(zip(*_trainings(place, snapshot.only([name])).to_pydict().values(), strict=True))
        if n := len(keys & kept_keys):
            set_aside(place, name)
            file = place.file_name("trainings", name)
            others = f", its {len(keys) - n} others run again" if len(keys) > n else ""
            messages[name] = f"{file}: {n} trainings that other files hold too; set aside in {place}/{ASIDE}{others}"
        else:
            kept_keys |= keys
    return messages


def refuse_doubles(place: Place, snapshot: Snapshot) -> None:
    """Called before files are merged."""
    if n := _n_doubled(place, snapshot):
        raise UserError(
            f"{place}/trainings",
            given=f"{n} trainings that are recorded in more than one file",
            expected="files that record each training once",
            fix=f"set aside the files that repeat trainings with: attnsweep resume {as_argument(place)}",
        )


def _n_doubled(place: Place, snapshot: Snapshot) -> int:
    parts = [_trainings(place, snapshot.only([name])) for name in snapshot.rows()]
    return sum(part.num_rows for part in parts) - _once(pa.concat_tables(parts)).num_rows if parts else 0


def _trainings(place: Place, snapshot: Snapshot) -> pa.Table:
    with naming_damage([place]), place.answering():
        # Two rows are the same training only if sweep, trial and replicate are equal. So rows that were copied from
        # another sweep are no repetitions; they are refused elsewhere.
        return _once(snapshot.dataset("trainings").to_table(columns=["sweep", "trial", "replicate"]))


def _once(trainings: pa.Table) -> pa.Table:
    return trainings.unify_dictionaries().group_by(trainings.column_names).aggregate([])


def _check(place: Place, table: str, name: str, attested: str | None) -> OpenFile | DamagedFileError:
    path = place.file_name(table, name)
    try:
        with place.answering(path), place.open_file(table, name) as file:
            if digest(file) != attested:
                return damaged(place, path, "a file that does not match its checksum")
        return open_file(place, table, name)
    except DamagedFileError as fault:
        return fault
    except FileNotFoundError:
        return damaged(place, path, "a file that does not exist")
    except OSError as error:
        return damaged(place, path, reason(error))


def _left_over(place: Place, known: Collection[str]) -> Iterator[FileProblem]:
    for table in TABLES:
        for name in place.names(table):
            if name not in known:
                yield FileProblem(
                    place.file_name(table, name), "left over by a commit or a merge that was cut short", True
                )
        for file in place.unfinished(table):
            yield FileProblem(f"{place}/{table}/{file}", "left over by a write that was cut short", True)
