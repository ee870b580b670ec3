"""The URI of a local MLflow database, and its file."""

from pathlib import Path
from urllib.parse import unquote

_SCHEME = "sqlite:///"


def uri_of(database: Path) -> str:
    """The URI of a file, which SQLAlchemy decodes, and ends at a question mark."""
    return _SCHEME + f"{database.absolute()}".replace("%", "%25").replace("?", "%3F")


def database_of(uri: str) -> Path | None:
    """The file of a local database; `None` for another store."""
    path = uri.removeprefix(_SCHEME).partition("?")[0]
    return Path(unquote(path)).resolve() if uri.startswith(_SCHEME) else None
