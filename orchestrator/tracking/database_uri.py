"""Converts between a local MLflow database's URI and its file."""

from pathlib import Path
from urllib.parse import unquote

_SCHEME = "sqlite:///"


def uri_of(database: Path) -> str:
    """Returns the URI of a local database file.

    `%` and `?` are escaped because SQLAlchemy decodes the path and takes the text after a question mark as options.
    """
    return _SCHEME + f"{database.absolute()}".replace("%", "%25").replace("?", "%3F")


def database_of(uri: str) -> Path | None:
    """Returns the file of a store's local database; `None` for any other store."""
    path = uri.removeprefix(_SCHEME).partition("?")[0]
    return Path(unquote(path)).resolve() if uri.startswith(_SCHEME) else None
