"""Creates MLflow databases quickly.

MLflow takes a second to create one, since it runs all schema migrations since its first version. So an empty database
is kept in the user's state folder, and copied for the next sweep.
"""

import hashlib
import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from attnsweep.orchestrator.storage.user_state import state_folder
from attnsweep.orchestrator.tracking.database_uri import uri_of


def make_database(database: Path) -> None:
    """Creates MLflow's database, which gets its name only when it is complete: MLflow never completes a half-made
    one."""
    from mlflow import MlflowClient

    kept = _place_kept()
    with TemporaryDirectory(prefix=".mlflow-", dir=database.parent) as folder:
        draft, copy = Path(folder, "draft.db"), Path(folder, "copy.db")
        is_kept = kept is not None and _copied_whole(kept, draft)
        # This request makes MLflow create the missing tables, and the default experiment with its folder in the current
        # working directory.
        MlflowClient(uri_of(draft)).search_experiments(max_results=1)
        # The draft database is copied because MLflow keeps it open, and closing a file frees all locks of this process
        # on that file.
        shutil.copyfile(draft, copy)
        if kept is not None and not is_kept:
            _keep(copy, kept)
        try:
            os.link(copy, database)
        except FileExistsError:
            # Another sweep has created the same database in the meantime.
            return
        except OSError:
            # A file system without hard links raises this error, so the copy is moved into place instead.
            copy.replace(database)


def _place_kept() -> Path | None:
    """Returns the path of the empty database that is kept for this version of MLflow; `None` if the user has no
    home."""
    import mlflow

    migrations = Path(mlflow.__file__).parent / "store" / "db_migrations" / "versions"
    names = sorted(path.name for path in migrations.glob("*.py"))
    tables = hashlib.sha256("".join([mlflow.__version__, *names]).encode()).hexdigest()[:16]
    with suppress(RuntimeError):
        return state_folder() / "mlflow" / f"{tables}.db"
    return None


def _copied_whole(kept: Path, draft: Path) -> bool:
    """Copies the kept empty database and returns whether the copy is sound. A database that a power cut damaged is
    removed."""
    with suppress(OSError, sqlite3.Error):
        shutil.copyfile(kept, draft)
        with closing(sqlite3.connect(draft)) as connection:
            if connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]:
                return bool(connection.execute("SELECT 1 FROM alembic_version").fetchone())
    draft.unlink(missing_ok=True)
    return False


def _keep(database: Path, kept: Path) -> None:
    """Keeps a copy of a new database as an empty template, without the default experiment. A failure is ignored."""
    with suppress(OSError, sqlite3.Error):
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryDirectory(dir=kept.parent) as folder:
            empty = Path(folder, kept.name)
            shutil.copyfile(database, empty)
            connection = sqlite3.connect(empty)
            connection.execute("DELETE FROM experiments")
            connection.commit()
            connection.close()
            empty.replace(kept)
