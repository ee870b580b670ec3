"""The runs of one sweep in MLflow: how they are found, created and completed."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from attnsweep.orchestrator.analysis.results import SweepResults
from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE, SweepDirectory
from attnsweep.orchestrator.tracking.content import MOST_RUNS, TrialContent, has_runs_of_trials
from attnsweep.orchestrator.tracking.store import experiment, open_client

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

    from attnsweep.orchestrator.tracking.mlflow_internals import EndedRun

_PAGE = 1000

N_PROJECTED = "attnsweep.n_trainings"
"""The tag of an ended parent run with the number of trainings that it covers."""
_N_REPORTED = "attnsweep.n_trainings_in_report"
_N_RETRIED = "attnsweep.n_retried"
"""The tag of an ended parent run with the number of repetitions of failed trainings until then."""


_MOST_OF_A_NOTE = 8_000
"""MLflow cuts longer ones, with a warning."""


class SweepRuns:
    """The runs of one sweep in MLflow: a parent run for the sweep and a child run for each trial.

    Children are inserted into a database, many in one transaction. A server gets a child in three calls: created
    (RUNNING, with its tags), filled, ended (FINISHED). A child that a crash left RUNNING is filled again. Filling is
    idempotent: it writes the same keys, values and times.

    A request whose answer was lost may still have created a run, so its repetition creates a second one. The surplus
    run stays RUNNING and empty until `finish` deletes it.

    The parent run is created if there is none.

    Raises:
        MlflowException: If the store cannot be reached; every method may raise it too.
    """

    def __init__(self, directory: SweepDirectory, uri: str) -> None:
        self._directory = directory
        self._client = open_client(uri)
        self._experiment = experiment(self._client, uri, experiment_name(directory.spec.workload))
        self._shared_tags = {
            "attnsweep.sweep": directory.sweep,
            "attnsweep.name": directory.spec.name,
            "attnsweep.spec_sha256": directory.spec_sha256,
            "mlflow.user": str(directory.provenance.get("user", "unknown")),
            "mlflow.source.name": "attnsweep",
            "mlflow.source.type": "LOCAL",
        }
        # There may be several parent runs (MLflow runs of the whole sweep), of which all but one are empty. The run
        # with the most parameters is used.
        parents = sorted(self._search("sweep"), key=lambda run: len(run.data.params), reverse=True)
        self._parent = parents[0] if parents else self._make_parent()
        self._parent_id: str = self._parent.info.run_id
        if not self._parent.data.params:
            self._fill_parent()
        # `mlflow_internals` is imported late because it imports MLflow, which takes seconds.
        from attnsweep.orchestrator.tracking.mlflow_internals import RunTables

        self._tables = RunTables.of(uri, self._experiment)

    def begin(self) -> None:
        if self._parent.info.status != "RUNNING":
            self._client.update_run(self._parent_id, status="RUNNING")

    def interrupt(self) -> None:
        """Until `begin` or `finish` is called."""
        self._client.set_terminated(self._parent_id, "KILLED")

    def logged(self, retried: Mapping[int, int | None]) -> tuple[set[int], dict[int, str]]:
        """Returns the trials that have a finished run, and the ids of the unfinished runs by trial.

        A run also counts as unfinished if replicates were added to its trial since, or failed trainings were repeated.

        Args:
            retried: For each trial of which a failed training was repeated: when its last training ended, in
                milliseconds since the epoch; `None` while a training is missing.
        """
        # Replicates may have been added to all trials since a run was logged. Such a run has as many trainings as each
        # trial had before: one of the numbers in `n_before`. It counts as unfinished. If a rule chooses the number of
        # replicates for each trial, `n_before` is empty, because a complete trial then stays complete.
        n_before = frozenset(self._directory.stages[:-1])
        finished, unfinished = set(), {}
        for run in self._search("trial"):
            trial, n_trainings = trial_of(run), run.data.metrics.get("n_trainings")
            is_retried = trial in retried and run.info.end_time != (retried[trial] or 0)
            if run.info.status == "FINISHED" and n_trainings not in n_before and not is_retried:
                finished.add(trial)
            else:
                unfinished[trial] = run.info.run_id
        return finished, {trial: run for trial, run in unfinished.items() if trial not in finished}

    def log(self, contents: Sequence[TrialContent], unfinished: Mapping[int, str]) -> Iterator[Sequence[TrialContent]]:
        """Writes the runs of several trials in batches, and yields each batch's contents once they are written.

        Args:
            unfinished: The ids of the runs to complete, by trial, from `logged`.
        """
        new = [content for content in contents if content.trial not in unfinished]
        if self._tables is not None and new:
            self._tables.insert([self._ended(content) for content in new])
            yield new
            contents = [content for content in contents if content.trial in unfinished]
        for content in contents:
            self._log(self._ended(content), unfinished.get(content.trial))
            yield [content]

    def _ended(self, content: TrialContent) -> "EndedRun":
        from mlflow.entities import Metric

        from attnsweep.orchestrator.tracking.mlflow_internals import EndedRun

        metrics = [Metric(name, value, content.ended, 0) for name, value in content.values.metrics.items()]
        metrics += [
            Metric(name, value, content.ended, step) for name, curve in content.curves.items() for step, value in curve
        ]
        return EndedRun(
            name=content.name,
            tags={**self._shared_tags, **content.tags, "mlflow.parentRunId": self._parent_id},
            params=content.values.params,
            metrics=metrics,
            started=content.started,
            ended=content.ended,
        )

    def _log(self, run: "EndedRun", run_id: str | None) -> None:
        """Updates the run with this id, or creates one."""
        if run_id is None:
            created = self._client.create_run(
                self._experiment, start_time=run.started, run_name=run.name, tags=dict(run.tags)
            )
            run_id = created.info.run_id
        self._fill(run_id, run.metrics, run.params)
        self._client.set_terminated(run_id, "FINISHED", run.ended)

    def finish(self, findings: SweepResults, ended: int | None, trials: str | None) -> None:
        """Writes the results to the parent run and ends it, unless it has ended and is up to date. Call it last.

        Args:
            ended: When the last pack was trained, milliseconds since the epoch.
            trials: The table of the sweep's trials as CSV, if the trials have no runs.
        """
        from mlflow.entities import Metric

        client, parent = self._client, self._parent_id
        for run in [*self._search("sweep", "RUNNING"), *self._search("trial", "RUNNING")]:
            if run.info.run_id != parent:
                client.delete_run(run.info.run_id)
        current = client.get_run(parent)
        tags, n_retried = current.data.tags, str(self._directory.n_retried)
        is_same = (tags.get(N_PROJECTED), tags.get(_N_RETRIED, "0")) == (str(findings.n_trainings), n_retried)
        if is_same and current.info.status == "FINISHED":
            return
        ended = current.info.start_time if ended is None else ended
        client.log_text(parent, self._directory.record(), SWEEP_FILE)
        client.log_text(parent, findings.markdown(), "summary.md")
        client.log_dict(parent, findings.as_json(), "summary.json")
        if trials is not None:
            client.log_text(parent, trials, "trials.csv")
        numbers = {
            "n_trainings": findings.n_trainings,
            "stuck_rate": findings.stuck.share,
            "stuck_rate_low": findings.stuck.low,
            "stuck_rate_high": findings.stuck.high,
            "solved_rate": findings.solved.share,
            "loss_median": findings.loss_median,
            **_role_metrics(findings),
        }
        metrics = [Metric(name, float(value), ended, 0) for name, value in numbers.items() if value is not None]
        self._fill(parent, metrics, {})
        client.set_tag(parent, "mlflow.note.content", _description(self._directory, findings.markdown()))
        client.set_terminated(parent, "FINISHED", ended)
        if self._directory.retried:
            client.set_tag(parent, _N_RETRIED, n_retried)
        client.set_tag(parent, N_PROJECTED, str(findings.n_trainings))

    def add_report(self, write: Callable[[Path], object]) -> None:
        """Adds artifacts that `write` puts into a folder, unless the run has a report of the same trainings."""
        tags = self._client.get_run(self._parent_id).data.tags
        n_trainings = tags.get(N_PROJECTED, "0")
        covered = f"{n_trainings}, {n} retried" if (n := tags.get(_N_RETRIED)) else n_trainings
        if n_trainings == "0" or covered == tags.get(_N_REPORTED):
            return
        with TemporaryDirectory(prefix="attnsweep-report-") as folder:
            write(Path(folder))
            self._client.log_artifacts(self._parent_id, folder)
        self._client.set_tag(self._parent_id, _N_REPORTED, covered)

    def _search(self, kind: str, status: str | None = None) -> "list[Run]":
        return search_runs(self._client, self._experiment, self._directory, kind, status)

    def _make_parent(self) -> "Run":
        spec, provenance = self._directory.spec, self._directory.provenance
        tags = {
            "attnsweep.kind": "sweep",
            "attnsweep.workload": spec.workload,
            "attnsweep.sampler": spec.sampler,
            "mlflow.source.git.commit": provenance.get("git_commit"),
            "mlflow.note.content": _description(self._directory, ""),
        }
        known = {name: value for name, value in tags.items() if value is not None}
        created = provenance.get("created_at")
        return self._client.create_run(
            self._experiment,
            start_time=round(1000 * datetime.fromisoformat(created).timestamp()) if created else None,
            run_name=self._directory.sweep,
            tags={**self._directory.tags, **self._shared_tags, **known},
        )

    def _fill_parent(self) -> None:
        spec = self._directory.spec
        budget = {"trials": spec.trials, "replicates": spec.replicates, "seconds": spec.seconds, "seed": spec.seed}
        params = {name: str(value) for name, value in spec.fixed().items()}
        params |= {f"sweep.{name}": str(value) for name, value in budget.items() if value is not None}
        self._client.log_text(self._parent_id, self._directory.record(), SWEEP_FILE)
        self._fill(self._parent_id, [], params)

    def _fill(self, run_id: str, metrics: Sequence[Any], params: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        # The batch may have any size, because MLflow's client splits a batch that is too large for the store.
        self._client.log_batch(run_id, metrics=metrics, params=[Param(*param) for param in params.items()])


def search_runs(
    client: "MlflowClient", experiment_id: str, directory: SweepDirectory, kind: str, status: str | None = None
) -> "list[Run]":
    """Of the kind `sweep` or `trial`."""
    tags = {"attnsweep.spec_sha256": directory.spec_sha256, "attnsweep.kind": kind}
    # MLflow cannot escape quotes in a search condition. So a sweep's name with special characters is left out of the
    # condition, and the runs of other sweeps are dropped below.
    if re.fullmatch(r"[\w.-]+", directory.sweep):
        tags["attnsweep.sweep"] = directory.sweep
    condition = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
    if status is not None:
        condition += f" and attributes.status = '{status}'"
    runs: list[Run] = []
    token = None
    while True:
        page = client.search_runs([experiment_id], condition, max_results=_PAGE, page_token=token)
        runs += [run for run in page if run.data.tags["attnsweep.sweep"] == directory.sweep]
        token = page.token
        if not token:
            return runs


def trial_of(run: "Run") -> int:
    return int(run.data.tags["attnsweep.trial_key"].rpartition("/")[2])


def experiment_name(workload: str) -> str:
    """A workload's registered name or, for `module:Class`, the class's.

    It depends on the spec alone: loading the workload would import torch, and the workload may no longer exist.
    """
    return workload.rpartition(":")[2]


def _role_metrics(findings: SweepResults) -> dict[str, float | None]:
    """How often each role occurs in each layer, and when it emerges."""
    if findings.roles is None:
        return {}
    metrics: dict[str, float | None] = {}
    for rate, when in findings.roles.rows():
        name = re.sub(r"\W", "_", f"{rate.role}_{findings.roles.layer_name(rate.layer)}")
        metrics |= {f"roles/{name}_rate": rate.rate.share, f"roles/{name}_median_step": when.median_step}
    return metrics


def _description(directory: SweepDirectory, result: str) -> str:
    spec = directory.spec
    lines = [
        spec.description or spec.name,
        "",
        *([directory.note, ""] if directory.note else []),
        f"`{directory.place.full_name}` on {directory.provenance.get('host', 'an unknown host')}; "
        f"{spec.trials} trials x {spec.replicates} replicates, sampler {spec.sampler}.",
        "",
        result or "No summary yet.",
        "",
        "The trials are the runs below this one."
        if has_runs_of_trials(spec)
        else f"The trials are in the table `trials.csv` among the artifacts: more than {MOST_RUNS:,} have no runs.",
        "Report with all figures: `report/report.html` among the artifacts.",
    ]
    return "\n".join(lines)[:_MOST_OF_A_NOTE]
