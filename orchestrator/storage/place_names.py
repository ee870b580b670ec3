"""Where a sweep is: the directory that a user named, or the local copy of `s3://BUCKET/PREFIX`.

Only an `s3://` URI loads the client of object stores. New directories in the folder of a Ray session, such as a job's
working directory, are refused, because Ray deletes that folder.
"""

import os
import re
import shlex
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from attnsweep.orchestrator.storage.copies import copy_of, name_of
from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.workloads.errors import UserError

PlaceName: TypeAlias = str | os.PathLike[str]

BULK = ("curves", "heads", "weights", "report")
"""The folders that only some commands read."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_URI = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9._-]{2,62})/(?P<prefix>[^?#]+)")


def place_of(where: PlaceName, subject: str = "DIR", without: Collection[str] = ()) -> Path:
    """The directory that a user named, which need not exist; for `s3://BUCKET/PREFIX` its local copy, brought up to
    date except for the folders `without`. Raises UserError for what can lead nowhere, and for credentials in a URI.
    """
    text = os.fspath(where)
    if text and not _SCHEME.match(text):
        return _reachable(Path(text), subject)
    if "@" in text.partition("//")[2].partition("/")[0] or "?" in text:
        expected = "s3://BUCKET/PREFIX without credentials or options in the address"
        fix = "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL, AWS_REGION in the environment"
        raise UserError(subject, given=_bare(text), expected=expected, fix=fix)
    match = _URI.fullmatch(text.rstrip("/"))
    if match is None or {"", ".", ".."} & set(match["prefix"].split("/")):
        fix = "write a path, or an address like s3://my-bucket/sweeps/first"
        raise UserError(subject, given=_bare(text), expected="a directory, or s3://BUCKET/PREFIX", fix=fix)
    from attnsweep.orchestrator.storage.object_store import refresh

    copy = copy_of(match["bucket"], match["prefix"])
    refresh(copy, without)
    return copy


def as_argument(place: object) -> str:
    """Quoted for a shell; a leading `-` becomes `./-`, which does not look like an option."""
    text = name_of(place)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def local_path(text: str) -> Path:
    """Raises UserError for an object store or a file."""
    if _SCHEME.match(text) or Path(text).is_file():
        expected = "a directory on this machine, because figures are written to it"
        raise UserError("--dir", given=_bare(text), expected=expected, fix="choose a local directory")
    return place_of(text, "--dir")


def _reachable(path: Path, subject: str) -> Path:
    """Raises UserError if no directory can exist there: below a file, or behind links that form a circle."""
    try:
        path.stat()
    except FileNotFoundError:
        return path
    except (OSError, ValueError) as error:
        fix = f"choose another path ({getattr(error, 'strerror', None) or error})"
        raise UserError(subject, given=str(path), expected="the path of a directory", fix=fix) from error
    return path


def _bare(text: str) -> str:
    """A URI without its options after `?`, and without user and password."""
    return re.split(r"[?#]", without_credentials(text))[0]


_SESSION = re.compile(r"session_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d+_\d+")


def new_directory(name: str, directory: str | None = None) -> str:
    """`./sweeps/<name>-<time>` unless a directory is given. Raises UserError in the folder of a Ray session."""
    if directory is None:
        directory = f"sweeps/{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    if "://" not in directory:
        refuse_ray_session(Path(directory), "--dir", "give --dir with a full path, or s3://BUCKET/PREFIX")
    return directory


def refuse_ray_session(path: Path, subject: str, fix: str) -> None:
    """`subject` is the option or variable that determines the path, `fix` what the user can give instead."""
    # A path that cannot be resolved is refused by the command that uses it.
    with suppress(OSError, RuntimeError, ValueError):
        path = path.resolve()
    if any(_SESSION.fullmatch(part) for part in path.parts):
        expected = "a directory outside of Ray's session folder, which Ray deletes after the job"
        raise UserError(subject, given=str(path.absolute()), expected=expected, fix=fix)
