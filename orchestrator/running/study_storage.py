"""Where a study is stored: a database that the sweep names, a journal file, or a journal in an object store.

Objects of a store cannot be appended to, so each `append` to a journal makes a new object, a piece. Pieces are numbered
and never overwritten: of two writers that want the same number one succeeds, and the other learns that it has lost the
sweep. A writer begins by creating a piece, which stays. An earlier writer that wakes up, or whose request was delayed,
then cannot add a piece, because its next number is taken. All pieces in order are a file that Optuna's
`JournalFileBackend` can read; the seals of the lines (`journal.Chain`) show whether a piece was changed or is missing.

Many pieces are joined into one. The content of a joined piece depends only on the pieces that it replaces, not on who
joins them when. A piece whose number a joined piece covers does not count.
"""

import json
import re
import uuid
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from optuna.storages import BaseStorage, JournalStorage, get_storage

from attnsweep.orchestrator.running.journal import Chain, JournalFile, Operation, Seals, StudyLog, read_seals
from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.s3 import ObjectPrefix
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SweepDirectory
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import SpecError, UserError

_MOST_PIECES = 100
"""Number of journal pieces (objects) after which they are joined into one."""
_PIECE, _JOINED = re.compile(r"piece-(\d{8})\.jsonl"), re.compile(r"joined-(\d{8})\.jsonl")
_WRITER = "attnsweep:writer"
_OPENING = f'"system_attr":{{"{_WRITER}":'


@dataclass(frozen=True)
class Pieces:
    """The journal as read from an object store.

    Attributes:
        seals: The lines' seals, of which none is wrong.
        number: The number of the last piece; 0 if there is none.
        names: The objects that hold the journal.
        passed: The objects that do not count, because a joined piece replaces them.
        first: The pieces among `names` with which a writer began its work.
    """

    lines: list[str]
    seals: Seals
    number: int
    names: list[str]
    passed: list[str]
    first: list[str]


class JournalPieces:
    """The journal in an object store. Only one process may write to it."""

    def __init__(self, prefix: ObjectPrefix, folder: str) -> None:
        self._prefix = prefix
        self._folder = folder
        self._names: list[str] = []
        self._number = 0
        self._chain = Chain()

    def load(self) -> list[str]:
        """Takes over as the only writer by adding a piece that names it, and returns all lines."""
        # This first line of the journal only identifies the writer. Optuna ignores the line, because the line sets an
        # attribute of a study that does not exist.
        entry = {
            "op_code": Operation.SET_STUDY_SYSTEM_ATTR,
            "worker_id": "attnsweep",
            "study_id": -1,
            "system_attr": {_WRITER: uuid.uuid4().hex},
        }
        opening = json.dumps(entry, separators=(",", ":"))
        while True:
            journal = read_pieces(self._prefix, self._folder)
            self._names, self._number, self._chain = journal.names, journal.number, journal.seals.chain
            sealed = self._chain.seal(opening)
            if self._create([sealed]):
                return [*journal.lines, sealed]
            if _piece(self._number) not in self._prefix.texts(self._folder):
                raise self._taken(self._number)

    def append(self, lines: list[str]) -> None:
        if len(self._names) > _MOST_PIECES:
            self._join()
        if not self._create([self._chain.seal(line) for line in lines]):
            raise self._taken(self._number)

    def _create(self, lines: list[str]) -> bool:
        self._number += 1
        name = _piece(self._number)
        text = "".join(f"{line}\n" for line in lines)
        if self._prefix.swap_text(f"{self._folder}/{name}", text, None) is None:
            # The store has refused to create the object, because it exists already. It may be our own, if the answer to
            # the write was lost and the client repeated the write. Then the stored text equals ours, while texts of
            # different writers always differ in their seals (chained digests).
            stored = self._prefix.versioned(f"{self._folder}/{name}")
            if stored is None or stored.text != text:
                return False
        self._names.append(name)
        return True

    def _join(self) -> None:
        journal = read_pieces(self._prefix, self._folder)
        if journal.number != self._number:
            raise self._taken(journal.number)
        name = f"joined-{journal.number:08d}.jsonl"
        # Two processes may join the journal's files at the same time. Then this upload replaces the file of the other
        # process, because a store cannot refuse a large upload if the object exists already. This does no harm, because
        # both files contain the same text.
        self._prefix.put_text(f"{self._folder}/{name}", "".join(f"{line}\n" for line in journal.lines))
        spare = [name for name in journal.passed if not _PIECE.fullmatch(name)]
        self._prefix.remove(self._folder, sorted({*journal.names, *spare} - {name, *journal.first}))
        self._names = [name]

    def _taken(self, number: int) -> StoreError:
        given = "a part of the journal of the study that another process has written"
        expected = "a sweep that only this process writes"
        fix = "wait until the other process ends, or stop it; the rows that this process has committed are kept"
        return StoreError(f"{self._prefix}/{self._folder}/{_piece(number)}", given=given, expected=expected, fix=fix)


def read_pieces(prefix: ObjectPrefix, folder: str) -> Pieces:
    """Reads the journal, even while another process adds pieces or joins several.

    Raises:
        UserError: If a piece is missing or damaged. The error names the piece.
    """
    names = prefix.texts(folder)
    while True:
        try:
            return _read(prefix, folder, names)
        except (FileNotFoundError, UserError):
            listed = prefix.texts(folder)
            if listed == names:
                raise
            names = listed


def orphans(prefix: ObjectPrefix, folder: str, journal: Pieces) -> list[str]:
    """Names pieces that do not count, because the processes that added them had lost the sweep's lock by then.

    A joined piece covers the numbers of these pieces, but lacks their lines.
    """
    lines = set(journal.lines)
    texts = _texts(prefix, folder, journal.passed)
    return [name for name, text in texts.items() if not lines.issuperset(_lines(text))]


def _read(prefix: ObjectPrefix, folder: str, names: Collection[str]) -> Pieces:
    joined = max(_numbered(_JOINED, names), default=None)
    first = joined[0] if joined else 0
    later = [(number, name) for number, name in _numbered(_PIECE, names) if number > first]
    for expected, (number, name) in enumerate(later, start=first + 1):
        if number != expected:
            raise _damaged(
                prefix,
                f"{folder}/{_piece(expected)}",
                f"a missing part of the study's journal: the later part {name} exists",
            )
    chosen = [*([joined[1]] if joined else []), *(name for _, name in later)]
    texts = _texts(prefix, folder, chosen)
    lines: list[str] = []
    ends: dict[str, int] = {}
    for name in chosen:
        lines += _lines(texts[name])
        ends[name] = len(lines)
    seals = read_seals(line.encode() for line in lines)
    if bad := sorted({*seals.broken, *seals.foreign}):
        name = next(name for name, end in ends.items() if bad[0] <= end)
        raise _damaged(
            prefix,
            f"{folder}/{name}",
            "a damaged part of the study's journal: it was changed, or does not continue the parts before it",
        )
    pieces = [name for pattern in (_JOINED, _PIECE) for _, name in _numbered(pattern, names)]
    passed = [name for name in pieces if name not in ends]
    begun = [name for _, name in later if _OPENING in texts[name]]
    return Pieces(lines, seals, later[-1][0] if later else first, list(ends), passed, begun)


def _numbered(pattern: re.Pattern[str], names: Collection[str]) -> list[tuple[int, str]]:
    matches = ((pattern.fullmatch(name), name) for name in names)
    return sorted((int(match[1]), name) for match, name in matches if match)


def _texts(prefix: ObjectPrefix, folder: str, names: list[str]) -> dict[str, str]:
    with ThreadPoolExecutor(prefix.n_at_once) as threads:
        texts = threads.map(prefix.read_text, [f"{folder}/{name}" for name in names])
        return dict(zip(names, texts, strict=True))


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _piece(number: int) -> str:
    return f"piece-{number:08d}.jsonl"


def _damaged(prefix: ObjectPrefix, name: str, given: str) -> UserError:
    expected = "the parts of the study's journal as attnsweep wrote them"
    fix = "restore the folder's objects from a copy, or from the bucket's versions"
    return UserError(f"{prefix}/{name}", given=given, expected=expected, fix=fix)


def check_storage(spec: Sweep) -> None:
    """Opens the database that the sweep names, if any, so that a faulty address is found before anything is written.

    Raises:
        SpecError: If Optuna cannot open the database, or if its path is relative and so depends on the current folder.
    """
    if spec.storage is None:
        return
    try:
        database = _file_of(spec.storage)
        if database is None or database.is_absolute():
            get_storage(spec.storage)
            return
    # Each storage library raises its own kinds of errors, so all exceptions are caught here.
    except Exception as error:
        reason = without_credentials(str(error)).partition("\n")[0]
        expected = "the URL of an Optuna storage that can be opened"
        fix = f"check the URL, or leave out the field storage; the error is {type(error).__name__}: {reason}"
        raise SpecError("storage", given=without_credentials(spec.storage), expected=expected, fix=fix) from error
    expected = "the absolute path of a database, because the sweep may be continued from another folder"
    fix = f"set storage=sqlite:///{database.absolute()}"
    raise SpecError("storage", given=spec.storage, expected=expected, fix=fix)


def check_database(storage: str) -> None:
    """Raises FileNotFoundError if an SQLite database does not exist. Opening it would create it."""
    if (database := _file_of(storage)) is not None and not database.exists():
        raise FileNotFoundError(
            f"the database {database.absolute()}, which the sweep's field `storage` names, does not exist"
        )


def _file_of(storage: str) -> Path | None:
    """`None` for anything but SQLite."""
    from sqlalchemy import make_url  # its import takes 0.15 s

    url = make_url(storage)
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None


def name_of(directory: SweepDirectory) -> str:
    """For messages."""
    return "the study" if directory.spec.storage else f"{directory.place}/{STUDY_FILE}"


def open_storage(directory: SweepDirectory) -> tuple[BaseStorage, StudyLog | None]:
    """Opens a study for writing; a database has no journal."""
    if directory.spec.storage:
        check_database(directory.spec.storage)
        return get_storage(directory.spec.storage), None
    place = directory.place
    assert isinstance(place, LocalFolder | ObjectPrefix)
    if isinstance(place, LocalFolder):
        journal: JournalFile | JournalPieces = JournalFile(place, STUDY_FILE)
    else:
        journal = JournalPieces(place, STUDY_FILE)
    log = StudyLog(journal.load(), journal.append)
    return JournalStorage(log), log


@contextmanager
def readable(directory: SweepDirectory) -> Iterator[None]:
    """Any error of Optuna or its database becomes a UserError."""
    try:
        yield
    except UserError:
        raise
    # Each storage library raises its own kinds of errors, so all exceptions are caught here.
    except Exception as error:
        reason = without_credentials(str(error)).partition("\n")[0]
        given = f"an Optuna study that cannot be read: {type(error).__name__}: {reason}"
        fix = "check the study's database" if directory.spec.storage else "restore the study from a copy"
        raise UserError(name_of(directory), given=given, expected="a study that Optuna can read", fix=fix) from error
