"""New MLflow databases.

MLflow takes a second to make one, since it repeats every change that its tables have ever had. So an empty one is kept
for the user's next.
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
    """Makes a database that is complete once it is there: MLflow never completes one that a kill left half-made."""
    from mlflow import MlflowClient

    kept = _place_kept()
    with TemporaryDirectory(prefix=".mlflow-", dir=database.parent) as folder:
        made, copy = Path(folder, "made.db"), Path(folder, "copy.db")
        is_kept = kept is not None and _copied_whole(kept, made)
        # Completes it: an empty one gets its default experiment here, with this working directory's folder.
        MlflowClient(uri_of(made)).search_experiments(max_results=1)
        # A copy, since MLflow keeps the first one open: to close a file frees all locks that this process has on it.
        shutil.copyfile(made, copy)
        if kept is not None and not is_kept:
            _keep(copy, kept)
        try:
            os.link(copy, database)
        except FileExistsError:
            # Another sweep has made it meanwhile.
            return
        except OSError:
            # A file system without links.
            copy.replace(database)


def _place_kept() -> Path | None:
    """Where an empty database with the tables of the installed MLflow is kept; `None` if the user has no home."""
    import mlflow

    changes = Path(mlflow.__file__).parent / "store" / "db_migrations" / "versions"
    names = sorted(each.name for each in changes.glob("*.py"))
    tables = hashlib.sha256("".join([mlflow.__version__, *names]).encode()).hexdigest()[:16]
    with suppress(RuntimeError):
        return state_folder() / "mlflow" / f"{tables}.db"
    return None


def _copied_whole(kept: Path, made: Path) -> bool:
    """Copies the one that is kept, unless it is damaged, as by a power cut: nothing is left of it then."""
    with suppress(OSError, sqlite3.Error):
        shutil.copyfile(kept, made)
        with closing(sqlite3.connect(made)) as connection:
            if connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]:
                return bool(connection.execute("SELECT 1 FROM alembic_version").fetchone())
    made.unlink(missing_ok=True)
    return False


def _keep(made: Path, kept: Path) -> None:
    """Keeps a copy of a database just made, without its default experiment. That it cannot be kept stops nothing."""
    with suppress(OSError, sqlite3.Error):
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryDirectory(dir=kept.parent) as folder:
            empty = Path(folder, kept.name)
            shutil.copyfile(made, empty)
            connection = sqlite3.connect(empty)
            connection.execute("DELETE FROM experiments")
            connection.commit()
            connection.close()
            empty.replace(kept)
