"""From what the user typed to where the sweep is. Light to import: only an `s3://` brings the store's client along."""

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from orchestrator.credentials import without_credentials
from workloads.errors import UserError

if TYPE_CHECKING:
    from orchestrator.places.object_prefix import ObjectPrefix
    from orchestrator.places.place import Place


class StoreError(UserError):
    """A disk or an object store that does not do what it was asked."""


Location: TypeAlias = "Path | ObjectPrefix"
"""Where a sweep lives. As a text, what the user types to come back to it; without credentials."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_URI = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9._-]{2,62})/(?P<prefix>[^?#]+)")


def locate(text: str | Path, subject: str = "DIR") -> Location:
    """The directory, or for `s3://BUCKET/PREFIX` the prefix; nothing is looked up yet.

    Args:
        text: What the user gave.
        subject: The argument or option that it was given for.

    Raises:
        UserError: For another kind of URI, or one with credentials in it.
    """
    text = str(text)
    if not _SCHEME.match(text):
        return Path(text)
    if "@" in urlsplit(text).netloc or "?" in text:
        raise UserError(
            subject,
            given=_bare(text),
            expected="s3://BUCKET/PREFIX, without credentials or options",
            mend="set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL, AWS_REGION in the environment",
        )
    found = _URI.fullmatch(text.rstrip("/"))
    if found is None or {"", ".", ".."} & set(found["prefix"].split("/")):
        raise UserError(
            subject,
            given=_bare(text),
            expected="a directory, or s3://BUCKET/PREFIX",
            mend="for example s3://my-bucket/sweeps/first",
        )
    from orchestrator.places.object_prefix import open_prefix

    return open_prefix(found["bucket"], found["prefix"])


def place_at(location: Location) -> "Place":
    """The place's reading and writing."""
    if isinstance(location, os.PathLike):
        from orchestrator.places.local_folder import LocalFolder

        return LocalFolder(Path(location))
    return location


def local_path(text: str, subject: str) -> Path:
    """A directory of this machine.

    Raises:
        UserError: For an object store.
    """
    location = locate(text, subject)
    if not isinstance(location, Path):
        raise UserError(subject, given=text, expected="a directory of this machine", mend="figures are drawn into it")
    return location


def as_argument(location: Location) -> str:
    """The location as one types it in a shell, also where it would be read as an option."""
    text = str(location)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def _bare(text: str) -> str:
    """The URI without what may be secret: what stands before an `@`, and options."""
    return re.split(r"[?#]", without_credentials(text))[0]
