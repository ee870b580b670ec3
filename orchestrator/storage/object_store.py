"""Sweeps in an S3-compatible object store. A sweep is worked on in a local copy; each finished file is uploaded as it
is committed, and whatever a copy lacks is downloaded.

One object, the claim, says who drives: it is taken and renewed by compare-and-swap, and expires. It also names the copy
that was driven last. This one may hold files that could not be uploaded, so it is completed; every other copy is made
equal to the store.

Ages are differences between times of the store's own clock. One case is not excluded: a process that is suspended
between `confirm` and the end of its upload, for longer than the claim lasts, still writes.
"""

import fcntl
import json
import os
import re
import threading
import time
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from pathlib import Path, PurePath

from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from attnsweep.orchestrator.storage.copies import CHECKPOINTS, LOCK_FILE, bucket_and_key, name_of
from attnsweep.orchestrator.storage.errors import StoreError, StoreMistakeError, TakenError
from attnsweep.workloads.errors import UserError

CLAIM_SECONDS = 300.0
_REQUEST_SECONDS = CLAIM_SECONDS / 5
"""The timeout of a request with its repetitions. A write begins while the claim lasts for at least half its time, so it
ends before the claim does."""
_RETRIES = 4
_PART_BYTES = 16 * 2**20
_PARTS_AT_ONCE = 4
"""Parts of 5 MiB that are uploaded together. Few, because each must arrive before the timeout."""
_UNCHANGING = ("trainings", "curves", "heads", CHECKPOINTS, "weights", "code", "set_aside")
"""Folders of files whose names tell their content. Besides them, the report and the files in the place itself are
copied."""


def upload(path: Path) -> None:
    with _answering(path) as (store, key):
        store.put(key, path, max_concurrency=_PARTS_AT_ONCE)


def delete(paths: Collection[Path]) -> None:
    for path in paths:
        with _answering(path) as (store, key), suppress(FileNotFoundError):
            store.delete(key)


def sizes_of_objects(place: Path) -> dict[str, int]:
    """Bytes of all objects, by their names below the place."""
    with _answering(place) as (store, key):
        pages = store.list(key)
        return {file["path"].removeprefix(f"{key}/"): file["size"] for page in pages for file in page}


def refresh(place: Path, without: Collection[str] = ()) -> None:
    """Makes a copy equal to the store, but for checkpoints and the folders `without`. A newer one stays as it is."""
    if _is_locked(place) or ("sweep.json" not in sizes_of_objects(place) and not place.exists()):
        return
    with _copying(place):
        claim = _read_claim(place / LOCK_FILE)
        if claim is None or claim.copy != _own_copy(place):
            _download(place, {*without, CHECKPOINTS})


@dataclass(frozen=True, slots=True)
class _Held:
    """A claim as stored; `holder` is empty once it has been given back."""

    holder: str
    copy: str
    version: str
    at: datetime


class Claim:
    """The right to work on a sweep in an object store, which a thread renews until `close`. Raises TakenError."""

    def __init__(self, place: Path, file: str, holder: str, *, holds_sweep: bool) -> None:
        self._place, self._path, self._holder, self._copy = place, place / file, holder, _own_copy(place)
        self._beat = 0
        self._using, self._closed = threading.Lock(), threading.Event()
        held = _read_claim(self._path)
        # A holder with this copy has ended, because this process has the kernel's lock.
        if held is not None and held.holder and held.copy != self._copy and _age(held, self._path) < CLAIM_SECONDS:
            lasts = f"after it was killed, its claim lasts for {CLAIM_SECONDS / 60:g} minutes"
            raise TakenError(name_of(place), f"{held.holder}; {lasts}")
        self._version: str | None = None if held is None else held.version
        self._renew()
        self._thread = threading.Thread(target=self._keep, name="claim", daemon=True)
        self._thread.start()
        try:
            if holds_sweep:
                with _copying(place):
                    _complete(place) if held is not None and held.copy == self._copy else _download(place, ())
        except BaseException:
            self.close()
            raise

    def confirm(self) -> None:
        """Renews a claim in its second half, even an expired one. Raises StoreError if another process has taken it."""
        if time.time() - self._renewed > CLAIM_SECONDS / 2:
            self._renew()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self._holder = ""
        with suppress(UserError):  # it expires by itself
            self._renew()

    def _keep(self) -> None:
        while not self._closed.wait(CLAIM_SECONDS / 10):
            with suppress(UserError):  # `confirm` meets and reports it
                self._renew()

    def _renew(self) -> None:
        with self._using:
            begun, self._beat = time.time(), self._beat + 1
            # The beat makes every text different: some stores use a text's hash as its version.
            text = json.dumps({"holder": self._holder, "copy": self._copy, "beat": f"{os.getpid()}/{self._beat}"})
            version = _swap(self._path, text, self._version)
            if version is None:
                held = _read_claim(self._path)
                if held is None or held.copy != self._copy:
                    self._renewed = 0.0
                    raise self._lost(held.holder if held else "its claim is gone")
                version = held.version  # the answer to an earlier write of ours was lost
            self._version, self._renewed = version, begun

    def _lost(self, holder: str) -> UserError:
        if self._beat == 1:
            return TakenError(name_of(self._place), holder)
        given = f"a sweep that another process has taken over ({holder})"
        fix = "the committed rows are kept, and the other process continues: let it end, or stop it"
        return StoreError(name_of(self._place), given=given, expected="one process at a time", fix=fix)


def _own_copy(place: Path) -> str:
    """The name of this copy, which no other one has."""
    file = place / ".copy"
    if not file.exists():
        file.write_text(uuid.uuid4().hex)
    return file.read_text()


def _is_locked(place: Path) -> bool:
    """Whether a process of this machine works on the sweep."""
    if not (place / LOCK_FILE).exists():
        return False
    with (place / LOCK_FILE).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def _copying(place: Path) -> Iterator[None]:
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        given, expected = f"{place} ({error.strerror})", "a folder for the local copies of sweeps in object stores"
        fix = "set it to a folder that you can write"
        raise UserError("XDG_STATE_HOME", given=given, expected=expected, fix=fix) from error
    with (place / ".copying").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download(place: Path, without: Collection[str]) -> None:
    """Makes a copy equal to the store."""
    while True:
        committed = {name for name in sizes_of_objects(place) if _folder(name) == "trainings"}
        # What a commit needs was uploaded before it, so a later listing has it, unless the commit was merged meanwhile.
        stored = {name: size for name, size in sizes_of_objects(place).items() if _is_copied(name, without)}
        if not committed <= stored.keys():
            continue
        if "sweep.json" not in stored:
            stored, committed = {}, set()
        wanted = {name: stored[name] for name in stored if _folder(name) != "trainings" or name in committed}
        try:
            for name in sorted(wanted, key=lambda name: _folder(name) == "trainings"):
                local_size = (place / name).stat().st_size if (place / name).is_file() else -1
                may_differ = _folder(name) not in _UNCHANGING and not name.endswith(".journal")  # which only grows
                if may_differ or local_size != wanted[name]:
                    _fetch(place / name, wanted[name])
        except FileNotFoundError:
            continue
        for name in _files(place):
            if _is_copied(name, without) and name not in wanted:
                (place / name).unlink()
        return


def _complete(place: Path) -> None:
    """Uploads what the store lacks of the copy that was driven last, and downloads what that lacks."""
    stored = sizes_of_objects(place)
    for name in sorted(_files(place), key=lambda name: (_folder(name) == "trainings", name == "sweep.json")):
        if _is_copied(name, ("report",)) and (_folder(name) not in _UNCHANGING or name not in stored):
            upload(place / name)
    for name in sorted(stored, key=lambda name: _folder(name) == "trainings"):
        if _is_copied(name, ()) and not (place / name).exists():
            _fetch(place / name, stored[name])


def _files(place: Path) -> list[str]:
    return [str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()]


def _folder(name: str) -> str:
    return name.rpartition("/")[0].partition("/")[0]


def _is_copied(name: str, without: Collection[str]) -> bool:
    folder = _folder(name)
    return not PurePath(name).name.startswith(".") and folder in ("", "report", *_UNCHANGING) and folder not in without


def _fetch(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    ends = [*range(0, size, _PART_BYTES), size]
    with _answering(path) as (store, key), temporary.open("wb") as file:
        for start, end in pairwise(ends):
            file.write(store.get_range(key, start=start, end=end))
    temporary.replace(path)


def _read_claim(path: Path) -> _Held | None:
    try:
        with _answering(path) as (store, key):
            answer = store.get(key)
            text, meta = bytes(answer.bytes()), answer.meta
    except FileNotFoundError:
        return None
    stored = json.loads(text)
    return _Held(stored["holder"], stored["copy"], meta["e_tag"] or "", meta["last_modified"])


def _age(held: _Held, path: Path) -> float:
    """By the store's clock: the time of an object that is written now."""
    clock = path.with_name(f".clock-{uuid.uuid4().hex}")
    with _answering(clock) as (store, key):
        store.put(key, b"")
        age: timedelta = store.head(key)["last_modified"] - held.at
        store.delete(key)
    return age.total_seconds()


def _swap(path: Path, text: str, version: str | None) -> str | None:
    """Writes only if the object still has this version; with `None`, if there is none. Returns the new version."""
    with _answering(path) as (store, key):
        try:
            return store.put(key, text.encode(), mode="create" if version is None else {"e_tag": version})["e_tag"]
        except (AlreadyExistsError, PreconditionError):
            return None


@lru_cache
def _store(bucket: str, address: str | None) -> S3Store:
    """obstore reads address, region and credentials from the environment."""
    del address  # only a key of the cache
    seconds = timedelta(seconds=_REQUEST_SECONDS)
    return S3Store(
        bucket,
        client_options={"allow_http": True, "connect_timeout": timedelta(seconds=5), "timeout": seconds},
        retry_config={"max_retries": _RETRIES, "retry_timeout": seconds},
    )


@contextmanager
def _answering(path: Path) -> Iterator[tuple[S3Store, str]]:
    """The store that holds a file or a place, and its key."""
    bucket, key = bucket_and_key(path)
    try:
        yield _store(bucket, os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")), key
    except BaseError as error:
        raise _refusal(name_of(path), str(error)) from error


def _refusal(uri: str, text: str) -> StoreError:
    """With the store's own words: the error's text has the request, the answer in XML, and debugging output too."""
    words = re.search(r"<Code>(.*?)</Code>(?:\s*<Message>(.*?)</Message>)?", text, re.DOTALL)
    given = ": ".join(filter(None, words.groups())) if words else text.partition("\n")[0]
    fix = "check the bucket, AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the network"
    kind = StoreMistakeError if re.search(r"status code: 40[0134]", text) else StoreError
    return kind(uri, given=given, expected="an object store that answers, and lets you read and write", fix=fix)
