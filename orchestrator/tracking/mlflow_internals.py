"""All names of MLflow, besides its client, that attnsweep uses. They are checked at import, because they are not public
and other versions of MLflow may lack them."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from mlflow.entities import Metric, Param, RunTag

from attnsweep.workloads.errors import UserError

TESTED = "3.17"

try:
    from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlMetric, SqlParam, SqlRun, SqlTag
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from mlflow.tracking._tracking_service.utils import _get_store as store_of
    from mlflow.utils.mlflow_tags import MLFLOW_RUN_NAME
    from mlflow.utils.uri import append_to_uri_path
    from mlflow.utils.validation import _validate_batch_log_data as validated
except ImportError as error:
    expected = f"an MLflow version from 3.15 to {TESTED}, which attnsweep was tested with ({error})"
    fix = f"install a tested version with: pip install 'mlflow=={TESTED}.*'"
    raise UserError("mlflow", given=f"MLflow version {version('mlflow')}", expected=expected, fix=fix) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedRun:
    """A run that has ended, as MLflow's client takes it. No metric is NaN or infinite; times in ms since the epoch."""

    name: str
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Sequence[Metric]
    started: int
    ended: int


class RunTables:
    """The tables of runs in MLflow's database, for writing many at once.

    They are written directly because MLflow's client writes a run in three calls, each with several transactions.
    """

    def __init__(self, store: "SqlAlchemyStore", experiment: str) -> None:
        self._store = store
        self._experiment = int(experiment)
        self._artifacts = store.get_experiment(experiment).artifact_location

    @staticmethod
    def of(uri: str, experiment: str) -> "RunTables | None":
        """`None` for a server, whose database only it can write to."""
        store = store_of(uri)
        return RunTables(store, experiment) if isinstance(store, SqlAlchemyStore) else None

    def insert(self, runs: Sequence[EndedRun]) -> None:
        """In one transaction.

        Raises:
            MlflowException: If the database does not take the runs, or MLflow does not allow a value. No run is added
                then.
        """
        rows: dict[Any, list[dict[str, Any]]] = {}
        for run in runs:
            for table, run_rows in self._rows(run).items():
                rows.setdefault(table, []).extend(run_rows)
        with self._store.ManagedSessionMaker(read_only=False) as session:
            for table, table_rows in rows.items():
                if table_rows:
                    session.execute(table.__table__.insert(), table_rows)

    def _rows(self, run: EndedRun) -> dict[Any, list[dict[str, Any]]]:
        """As MLflow's client would insert, by table."""
        run_id = uuid.uuid4().hex
        all_tags = [RunTag(*tag) for tag in {MLFLOW_RUN_NAME: run.name, **run.tags}.items()]
        latest: dict[str, Metric] = {}
        for metric in run.metrics:
            if metric.key not in latest or _age(metric) > _age(latest[metric.key]):
                latest[metric.key] = metric
        # Only one value of each metric is validated, because validating all values takes as long as writing them.
        _, params, tags = validated([*latest.values()], [Param(*param) for param in run.params.items()], all_tags)
        row = {
            "run_uuid": run_id,
            "name": run.name,
            "artifact_uri": append_to_uri_path(self._artifacts, run_id, SqlAlchemyStore.ARTIFACTS_FOLDER_NAME),
            "experiment_id": self._experiment,
            "source_type": "UNKNOWN",
            "source_name": "",
            "entry_point_name": "",
            "source_version": "",
            "user_id": run.tags.get("mlflow.user", "unknown"),
            "status": "FINISHED",
            "lifecycle_stage": "active",
            "start_time": run.started,
            "end_time": run.ended,
        }
        return {
            SqlRun: [row],
            SqlTag: [{"run_uuid": run_id, "key": tag.key, "value": tag.value} for tag in tags],
            SqlParam: [{"run_uuid": run_id, "key": param.key, "value": param.value} for param in params],
            SqlMetric: [_number_row(run_id, metric) for metric in run.metrics],
            SqlLatestMetric: [_number_row(run_id, metric) for metric in latest.values()],
        }


def _number_row(run_id: str, metric: Metric) -> dict[str, Any]:
    return {
        "run_uuid": run_id,
        "key": metric.key,
        "value": metric.value,
        "timestamp": metric.timestamp,
        "step": metric.step,
        "is_nan": False,
    }


def _age(metric: Metric) -> tuple[int, int, float]:
    """MLflow takes the value with the largest key as the latest."""
    return metric.step, metric.timestamp, metric.value
