"""Finds, makes and completes the runs of one sweep in MLflow, by its public client."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

from attnsweep.orchestrator.analysis.results import SweepResults
from attnsweep.orchestrator.analysis.tables import as_json
from attnsweep.orchestrator.storage.files import read_text
from attnsweep.orchestrator.storage.sweep_directory import REPORT_FILE, SWEEP_FILE, SweepDirectory
from attnsweep.orchestrator.tracking.content import TrialContent, sweep_metrics, sweep_note
from attnsweep.orchestrator.tracking.store import database_of, experiment, open_client

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

Status: TypeAlias = Literal["RUNNING", "FINISHED", "KILLED"]
_PAGE = 1000
_REPORT = "attnsweep.report_sha256"


@dataclass(frozen=True, slots=True)
class Child:
    """The run of one trial; if `finished`, it has all trainings up to `ended`, milliseconds since the epoch."""

    trial: int
    run_id: str
    finished: bool
    ended: int | None


@dataclass(frozen=True)
class Logged:
    """The runs that MLflow has of a sweep.

    Attributes:
        parents: The number of trainings that each parent run records, by the run's id; `None` if it has not ended.
    """

    parents: Mapping[str, int | None]
    children: Sequence[Child]

    @cached_property
    def finished(self) -> frozenset[int]:
        return frozenset(child.trial for child in self.children if child.finished)

    def runs_of(self, trial: int) -> list[str]:
        return [child.run_id for child in self.children if child.trial == trial]


def look_up(directory: SweepDirectory, uri: str) -> Logged:
    """Creates nothing; raises MlflowException if the store cannot be reached."""
    database = database_of(uri)
    if database is not None and not database.exists():
        return Logged({}, [])
    client = open_client(uri)
    found = client.get_experiment_by_name(experiment_name(directory.spec.workload))
    if found is None or found.lifecycle_stage != "active":
        return Logged({}, [])
    parents = {
        run.info.run_id: None if run.info.status == "RUNNING" else int(run.data.metrics.get("n_trainings", 0))
        for run in _search(client, found.experiment_id, directory, "sweep")
    }
    return Logged(parents, _children(client, found.experiment_id, directory))


class SweepRuns:
    """A parent run for the sweep, made if there is none, and a child run for each trial.

    A child is made (RUNNING, with its tags), filled, and ended (FINISHED). One that a crash left RUNNING is filled
    again, with the same keys, values and times. A repeated request whose first answer was lost makes a second run,
    which stays RUNNING and empty until `log_results` deletes it.

    Raises:
        MlflowException: If the store cannot be reached; every method may raise it too.
    """

    def __init__(self, directory: SweepDirectory, uri: str) -> None:
        self._client = open_client(uri)
        self._experiment = experiment(self._client, uri, experiment_name(directory.spec.workload))
        self._tags = {
            "attnsweep.sweep": directory.sweep,
            "attnsweep.name": directory.spec.name,
            "attnsweep.spec_sha256": directory.spec_sha256,
            "mlflow.user": str(directory.provenance.get("user", "unknown")),
            "mlflow.source.name": "attnsweep",
            "mlflow.source.type": "LOCAL",
        }
        parents = _search(self._client, self._experiment, directory, "sweep")
        # A second one, of a repeated request, has no parameters.
        self._parent = max(parents, key=lambda run: len(run.data.params), default=None) or self._make_parent(directory)
        self._id: str = self._parent.info.run_id
        if not self._parent.data.params:
            self._fill(self._id, {}, {name: str(value) for name, value in _params(directory).items()})
        children = _children(self._client, self._experiment, directory)
        self._children = {child.trial: child for child in sorted(children, key=lambda child: child.finished)}

    def has(self, trial: int, ended: int) -> bool:
        """Whether a trial's run is complete; trainings that were added or repeated since have ended later."""
        child = self._children.get(trial)
        return child is not None and child.finished and child.ended == ended

    def log(self, content: TrialContent) -> None:
        child = self._children.get(content.trial)
        if child is None:
            tags = {**self._tags, **content.tags, "mlflow.parentRunId": self._id}
            started, name = content.started, content.name
            made = self._client.create_run(self._experiment, start_time=started, run_name=name, tags=tags)
            run_id: str = made.info.run_id
        else:
            run_id = child.run_id
        self._fill(run_id, content.metrics, content.params, content.curve, content.ended)
        self._client.set_terminated(run_id, "FINISHED", content.ended)
        self._children[content.trial] = Child(content.trial, run_id, True, content.ended)

    def begin(self) -> None:
        if self._parent.info.status != "RUNNING":
            self._client.update_run(self._id, status="RUNNING")

    def is_up_to_date(self, status: Status, n_trainings: int, ended: int | None) -> bool:
        run = self._client.get_run(self._id)
        found = run.info.status, run.data.metrics.get("n_trainings"), run.info.end_time
        return found == (status, n_trainings, ended)

    def log_results(self, directory: SweepDirectory, results: SweepResults) -> None:
        for kind in ("sweep", "trial"):
            for run in _search(self._client, self._experiment, directory, kind):
                if run.info.status == "RUNNING" and run.info.run_id != self._id:
                    self._client.delete_run(run.info.run_id)
        self._client.log_text(self._id, read_text(directory.place / SWEEP_FILE), SWEEP_FILE)
        self._client.log_text(self._id, results.markdown(), "summary.md")
        self._client.log_dict(self._id, as_json(results), "summary.json")
        self._client.set_tag(self._id, "mlflow.note.content", sweep_note(directory, results.markdown()))
        self._fill(self._id, sweep_metrics(results), {})

    def log_table(self, trials: str) -> None:
        self._client.log_text(self._id, trials, "trials.csv")

    def log_report(self, page: str) -> None:
        """Unless it is there already."""
        digest = hashlib.sha256(page.encode()).hexdigest()
        if self._client.get_run(self._id).data.tags.get(_REPORT) != digest:
            self._client.log_text(self._id, page, REPORT_FILE)
            self._client.set_tag(self._id, _REPORT, digest)

    def end(self, status: Status, ended: int | None) -> None:
        if status != "RUNNING":
            self._client.set_terminated(self._id, status, ended)

    def _make_parent(self, directory: SweepDirectory) -> "Run":
        tags = {
            "attnsweep.kind": "sweep",
            "attnsweep.workload": directory.spec.workload,
            "attnsweep.sampler": directory.spec.sampler,
            "mlflow.source.git.commit": directory.provenance.get("git_commit"),
            "mlflow.note.content": sweep_note(directory, "No results yet."),
        }
        known = {name: value for name, value in tags.items() if value is not None}
        created = directory.provenance.get("created_at")
        return self._client.create_run(
            self._experiment,
            start_time=round(1000 * datetime.fromisoformat(created).timestamp()) if created else None,
            run_name=directory.sweep,
            tags={**directory.tags, **self._tags, **known},
        )

    def _fill(
        self,
        run_id: str,
        metrics: Mapping[str, float],
        params: Mapping[str, str],
        curve: Sequence[tuple[int, float]] = (),
        at: int = 0,
    ) -> None:
        from mlflow.entities import Metric, Param

        points = [Metric(name, value, at, 0) for name, value in metrics.items()]
        points += [Metric("loss_curve", value, at, step) for step, value in curve]
        self._client.log_batch(run_id, metrics=points, params=[Param(*param) for param in params.items()])


def _params(directory: SweepDirectory) -> dict[str, object]:
    return {**directory.spec.fixed(), "sweep.seed": directory.spec.seed}


def _children(client: "MlflowClient", experiment_id: str, directory: SweepDirectory) -> list[Child]:
    return [
        Child(
            int(run.data.tags["attnsweep.trial_key"].rpartition("/")[2]),
            run.info.run_id,
            run.info.status == "FINISHED",
            run.info.end_time,
        )
        for run in _search(client, experiment_id, directory, "trial")
    ]


def _search(client: "MlflowClient", experiment_id: str, directory: SweepDirectory, kind: str) -> "list[Run]":
    """Of the kind `sweep` or `trial`."""
    tags = {"attnsweep.spec_sha256": directory.spec_sha256, "attnsweep.kind": kind}
    # MLflow cannot escape quotes in a condition, so a name with special characters is left out of it.
    if re.fullmatch(r"[\w.-]+", directory.sweep):
        tags["attnsweep.sweep"] = directory.sweep
    condition = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
    runs: list[Run] = []
    token = None
    while True:
        page = client.search_runs([experiment_id], condition, max_results=_PAGE, page_token=token)
        runs += [run for run in page if run.data.tags["attnsweep.sweep"] == directory.sweep]
        token = page.token
        if not token:
            return runs


def experiment_name(workload: str) -> str:
    """A workload's registered name or, for `module:Class`, the class's: loading it would import torch."""
    return workload.rpartition(":")[2]
