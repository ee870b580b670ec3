"""A sweep under a prefix of an S3-compatible store. What is uploaded appears whole, under its name, or not at all."""

import errno
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.lease import ObjectLock
from attnsweep.orchestrator.storage.place import ASIDE, digest

_ATTEMPTS = 5
_CONNECT_SECONDS, _ANSWER_SECONDS = 5.0, 60.0
_CHUNK = 8 * 2**20

_FIXES = {
    r"NO_SUCH_BUCKET|NoSuchBucket|InvalidBucketName": "make the bucket, or check its name and AWS_ENDPOINT_URL",
    r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE|TOKEN|CREDENTIAL|INVALID_CLIENT": (
        "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and their rights to the bucket"
    ),
    r"NETWORK|TIMEOUT": "check AWS_ENDPOINT_URL and the network",
}


@dataclass(frozen=True, slots=True)
class ObjectPrefix:
    """A prefix of a bucket.

    The store must list and show a name as soon as its upload returned (as S3 does since 2020). An upload is one PUT, or
    a multipart upload, which appears when it is completed. What was removed cannot be read by who has opened it.
    """

    uri: str
    _base: str
    _store: pafs.S3FileSystem = field(compare=False, repr=False)

    pins_open_files = False
    n_at_once = 16

    def __str__(self) -> str:
        return self.uri

    @property
    def full_name(self) -> str:
        return self.uri

    @contextmanager
    def answering(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if "AWS Error" not in str(error):
                raise
            raise _refusal(self.uri, str(error)) from error

    def is_vacant(self) -> bool:
        self._require_bucket()
        return not self._listed("")

    def check_makeable(self) -> None:
        """Nothing to do: the first object shows it."""

    def make(self) -> None:
        """Nothing to do: a prefix is there with its first object."""

    def has_text(self, name: str) -> bool:
        with self.answering():
            return bool(self._store.get_file_info(self._key(name)).type == pafs.FileType.File)

    def read_text(self, name: str) -> str:
        try:
            with self.answering(), self._store.open_input_stream(self._key(name)) as stream:
                return bytes(stream.read()).decode()
        except (FileNotFoundError, StoreError) as error:
            # An object that is removed between its opening and its reading is many errors, by store and by chance.
            if self.has_text(name):
                raise
            self._require_bucket()
            raise FileNotFoundError(errno.ENOENT, "no such object", f"{self.uri}/{name}") from error

    def put_text(self, name: str, text: str) -> None:
        with tempfile.TemporaryDirectory(prefix="attnsweep-") as folder:
            path = Path(folder) / "text"
            path.write_text(text)
            self._upload(path, name)

    def put_passing_text(self, name: str, text: str) -> None:
        self.put_text(name, text)

    def put_new_text(self, name: str, text: str) -> None:
        # S3 could refuse the second of two, but pyarrow cannot ask it to.
        if self.has_text(name):
            raise FileExistsError(errno.EEXIST, "there is one already", f"{self.uri}/{name}")
        self.put_text(name, text)

    def texts(self, folder: str) -> dict[str, datetime]:
        """The names of the texts of a folder, and when the store says that each was written."""
        return {info.base_name: info.mtime for info in self._listed(folder) if info.type == pafs.FileType.File}

    def has_folder(self, folder: str) -> bool:
        if self._listed(folder):
            return True
        self._require_bucket()
        return False

    def make_folders(self, folders: Collection[str]) -> None:
        for folder in folders:
            if not self._listed(folder):
                self.put_text(f"{folder}/{_FOLDER_MARK}", "")

    def names(self, folder: str) -> list[str]:
        return [name.removesuffix(".parquet") for name in self.texts(folder) if name.endswith(".parquet")]

    def unfinished(self, folder: str) -> list[str]:
        """None: what was not completed has no name."""
        del folder
        return []

    def file_name(self, folder: str, name: str) -> str:
        return f"{self.uri}/{folder}/{name}.parquet"

    def open_file(self, folder: str, name: str) -> pa.NativeFile:
        try:
            with self.answering():
                return self._store.open_input_file(self._key(f"{folder}/{name}.parquet"))
        except FileNotFoundError as gone:
            raise FileNotFoundError(gone.errno, "no such object", self.file_name(folder, name)) from gone

    def publish(self, stem: str, files: Mapping[str, Callable[[Path], None]]) -> str:
        """Complete files of this machine are uploaded under their names: there is no renaming, and none is needed."""
        with tempfile.TemporaryDirectory(prefix="attnsweep-") as scratch:
            for folder, write in files.items():
                write(Path(scratch) / folder)
            with (Path(scratch) / folder).open("rb") as last:
                name = f"{stem}-{digest(last)}"
            for folder in files:
                self._upload(Path(scratch) / folder, f"{folder}/{name}.parquet")
        return name

    def remove(self, folder: str, files: Collection[str]) -> None:
        def delete(file: str) -> None:
            with self.answering():
                self._store.delete_file(self._key(f"{folder}/{file}"))

        with ThreadPoolExecutor(self.n_at_once) as threads:
            list(threads.map(delete, files))

    def set_aside(self, folder: str, name: str) -> None:
        key = self._key(f"{folder}/{name}.parquet")
        with self.answering():
            self._store.copy_file(key, self._key(f"{ASIDE}/{folder}/{name}.parquet"))
            self._store.delete_file(key)

    def lock(self, work: str) -> ObjectLock:
        return ObjectLock(self, work)

    def _upload(self, path: Path, name: str) -> None:
        # In a thread, where no signal's exception can come between an upload's beginning and its end: pyarrow would
        # complete it with what it has.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(self._put, path, name).result()

    def _put(self, path: Path, name: str) -> None:
        # Not `pyarrow.fs.copy_files`, which does not tell that the store has refused a small file.
        with self.answering(), path.open("rb") as file:
            stream = self._store.open_output_stream(self._key(name))
            while chunk := file.read(_CHUNK):
                stream.write(chunk)
            stream.close()

    def _listed(self, folder: str) -> list[pafs.FileInfo]:
        with self.answering():
            selector = pafs.FileSelector(self._key(folder) if folder else self._base, allow_not_found=True)
            return list(self._store.get_file_info(selector))

    def _require_bucket(self) -> None:
        bucket = self._base.partition("/")[0]
        with self.answering():
            found = self._store.get_file_info(bucket)
        if found.type == pafs.FileType.NotFound:
            raise _refusal(self.uri, f"NO_SUCH_BUCKET: there is no bucket {bucket}")

    def _key(self, name: str) -> str:
        return f"{self._base}/{name}"


_FOLDER_MARK = ".folder"
"""An object that stands for a folder without files. Readers of Parquet pass over names that begin with a dot."""


def open_prefix(bucket: str, prefix: str) -> ObjectPrefix:
    """A prefix, with endpoint, region and credentials as the environment, or AWS's configuration files, have them.

    Raises:
        StoreError: If AWS does not know the bucket's region.
    """
    uri = f"s3://{bucket}/{prefix}"
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    try:
        store = pafs.S3FileSystem(
            endpoint_override=endpoint,
            region=region or ("us-east-1" if endpoint else pafs.resolve_s3_region(bucket)),
            connect_timeout=_CONNECT_SECONDS,
            request_timeout=_ANSWER_SECONDS,
            retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
            # A small file is then one PUT.
            allow_delayed_open=True,
        )
    except OSError as error:
        raise _refusal(uri, str(error)) from error
    return ObjectPrefix(uri, f"{bucket}/{prefix}", store)


def _refusal(uri: str, answer: str) -> StoreError:
    words = " ".join(re.sub(r"\(Request ID.*", "", answer).split())
    given = re.sub(r".*AWS Error ", "", words).removesuffix(" No response body.").rstrip(":")
    fix = next((fix for pattern, fix in _FIXES.items() if re.search(pattern, words)), "look into the store's log")
    return StoreError(uri, given=given, expected="an object store that answers", fix=fix)
