"""A sweep under a prefix of an S3-compatible object store. Each upload is atomic."""

import errno
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from attnsweep.orchestrator.storage.locks import LEASE_FILE, ObjectLock, Versioned
from attnsweep.orchestrator.storage.place import ASIDE, digest
from attnsweep.orchestrator.storage.s3_client import WRITE_SECONDS, open_store, refusal

if TYPE_CHECKING:
    from obstore import PutMode

_PART_BYTES = 16 * 2**20
"""The most bytes that one request downloads."""
_UPLOADED_AT_ONCE = 4
"""Number of parts of 5 MiB that are uploaded concurrently. It is low, because all parts share the network and each must
arrive before the request's timeout."""


_FOLDER_MARK = ".folder"
"""Name of an empty object that makes a folder exist. Readers of Parquet ignore names that begin with a dot."""


@dataclass(frozen=True, slots=True)
class ObjectPrefix:
    """A prefix of a bucket. The store must be strongly consistent (as S3 since 2020) and honour `If-None-Match` and
    `If-Match` of a PUT (as S3 since 2024).

    An upload is one PUT or a multipart upload; in both, the object appears when the upload is complete. Requests
    that write use a separate client, whose timeout is shorter than the lease.
    """

    uri: str
    _store: S3Store = field(compare=False, repr=False)
    _uploads: S3Store = field(compare=False, repr=False)
    _base: str = ""

    n_at_once = 16

    def __str__(self) -> str:
        return self.uri

    @property
    def full_name(self) -> str:
        return self.uri

    @contextmanager
    def answering(self, file: str | None = None) -> Iterator[None]:
        try:
            yield
        except BaseError as error:
            raise refusal(self.uri, str(error), file) from error

    def inside(self, folder: str) -> "ObjectPrefix":
        """Shares this place's S3 clients, because a new one takes 8 ms and opens its own connections."""
        return replace(self, uri=f"{self.uri}/{folder}", _base=f"{self._base}{folder}/")

    def is_vacant(self) -> bool:
        return not self._has_objects("")

    def check_makeable(self) -> None:
        """Whether objects can be written only shows when one is."""

    def make(self) -> None:
        """A prefix exists as soon as it has an object."""

    def has_text(self, name: str) -> bool:
        try:
            with self.answering(f"{self.uri}/{name}"):
                self._store.head(self._key(name))
        except FileNotFoundError:
            return False
        return True

    def read_text(self, name: str) -> str:
        stored = self.versioned(name)
        if stored is None:
            # The objects with this prefix are listed, because this is the only request that raises an error if the
            # bucket is missing. Other requests give the same answer for a missing bucket as for a missing object.
            self._has_objects("")
            raise FileNotFoundError(errno.ENOENT, "the object does not exist", f"{self.uri}/{name}")
        return stored.text

    def versioned(self, name: str) -> Versioned | None:
        """The version is the ETag."""
        try:
            with self.answering(f"{self.uri}/{name}"):
                answer = self._store.get(self._key(name))
                return Versioned(
                    bytes(answer.bytes()).decode(), answer.meta["e_tag"] or "", answer.meta["last_modified"]
                )
        except FileNotFoundError:
            return None

    def put_text(self, name: str, text: str, *, durable: bool = True) -> None:
        del durable
        self._put(name, text.encode())

    def put_new_text(self, name: str, text: str) -> None:
        if self.swap_text(name, text, None) is None and self.read_text(name) != text:
            raise FileExistsError(errno.EEXIST, "an object of this name exists already", f"{self.uri}/{name}")

    def swap_text(self, name: str, text: str, version: str | None) -> str | None:
        """Returns the new ETag, or `None` if nothing was written.

        If the store's answer is lost, the client repeats the write. The store may refuse the repetition, because the
        first write has changed the version.
        """
        mode: PutMode = "create" if version is None else {"e_tag": version}
        with self._writing(name):
            try:
                return self._uploads.put(self._key(name), text.encode(), mode=mode, use_multipart=False)["e_tag"]
            except (AlreadyExistsError, PreconditionError):
                return None

    def now(self) -> datetime:
        """The modification time of a temporary object."""
        name = f".clock-{uuid.uuid4().hex}"
        with self._writing(name):
            self._uploads.put(self._key(name), b"")
            written = self._store.head(self._key(name))["last_modified"]
            self._uploads.delete(self._key(name))
        return written

    def texts(self, folder: str) -> list[str]:
        with self.answering():
            listed = self._store.list_with_delimiter(self._key(folder))
        return [file["path"].rpartition("/")[2] for file in listed["objects"]]

    def has_folder(self, folder: str) -> bool:
        return self._has_objects(folder)

    def folders(self) -> list[str]:
        with self.answering():
            listed = self._store.list_with_delimiter(self._key(""))
        return [prefix.rpartition("/")[2] for prefix in listed["common_prefixes"]]

    def make_folders(self, folders: Collection[str]) -> None:
        for folder in folders:
            if not self._has_objects(folder):
                self.put_text(f"{folder}/{_FOLDER_MARK}", "")

    def sizes(self, pass_over: Callable[[OSError], object] | None = None) -> dict[str, int]:
        del pass_over
        with self.answering():
            pages = self._store.list(self._key("") or None)
            return {file["path"].removeprefix(self._base): file["size"] for page in pages for file in page}

    def names(self, folder: str) -> list[str]:
        return [name.removesuffix(".parquet") for name in self.texts(folder) if name.endswith(".parquet")]

    def unfinished(self, folder: str) -> list[str]:
        """An interrupted upload leaves no object."""
        del folder
        return []

    def file_name(self, folder: str, name: str) -> str:
        return f"{self.uri}/{folder}/{name}.parquet"

    def open_file(self, folder: str, name: str) -> pa.NativeFile:
        """Downloads it into memory."""
        key = f"{folder}/{name}.parquet"
        try:
            with self.answering(f"{self.uri}/{key}"):
                answer = self._store.get(self._key(key))
                size = answer.meta["size"]
                if size <= _PART_BYTES:
                    return pa.BufferReader(pa.py_buffer(answer.bytes()))
                ends = [*range(0, size, _PART_BYTES), size]
                parts = [self._store.get_range(self._key(key), start=a, end=b) for a, b in pairwise(ends)]
                return pa.BufferReader(pa.py_buffer(b"".join(parts)))
        except FileNotFoundError as gone:
            raise FileNotFoundError(errno.ENOENT, "the object does not exist", f"{self.uri}/{key}") from gone

    def publish(self, stem: str, files: Mapping[str, Callable[[Path], None]]) -> str:
        """All files are complete on this machine before the first one is uploaded."""
        with tempfile.TemporaryDirectory(prefix="attnsweep-") as scratch:
            for folder, write in files.items():
                write(Path(scratch) / folder)
            with (Path(scratch) / folder).open("rb") as last:
                name = f"{stem}-{digest(last)}"
            for folder in files:
                self._put(f"{folder}/{name}.parquet", Path(scratch) / folder)
        return name

    def remove(self, folder: str, files: Collection[str]) -> None:
        if files:
            with self.answering():
                self._uploads.delete([self._key(f"{folder}/{file}" if folder else file) for file in files])

    def set_aside(self, folder: str, name: str) -> None:
        key = f"{folder}/{name}.parquet"
        with self.answering(f"{self.uri}/{key}"):
            self._uploads.copy(self._key(key), self._key(f"{ASIDE}/{key}"))
            self._uploads.delete(self._key(key))

    def lock(self, work: str, file: str = LEASE_FILE) -> ObjectLock:
        return ObjectLock(self, work, file)

    def _put(self, name: str, content: bytes | Path) -> None:
        with self._writing(name):
            self._uploads.put(self._key(name), content, max_concurrency=_UPLOADED_AT_ONCE)

    def _key(self, name: str) -> str:
        return self._base + name

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        """Like `answering`; "not found" means that the bucket is missing: nothing else has to exist before a write."""
        try:
            with self.answering(f"{self.uri}/{name}"):
                yield
        except FileNotFoundError as error:
            raise refusal(self.uri, str(error)) from error

    def _has_objects(self, folder: str) -> bool:
        with self.answering():
            listed = self._store.list_with_delimiter(self._key(folder))
        return bool(listed["objects"] or listed["common_prefixes"])


def open_prefix(bucket: str, prefix: str) -> ObjectPrefix:
    """Endpoint, region and credentials are read from the environment or AWS's configuration files.

    Raises:
        StoreError: If AWS does not know the bucket's region.
    """
    uri = f"s3://{bucket}/{prefix}"
    try:
        return ObjectPrefix(uri, open_store(bucket, prefix), open_store(bucket, prefix, WRITE_SECONDS))
    except (OSError, BaseError) as error:
        raise refusal(uri, str(error)) from error
