"""Recorded trainings of a sweep: finds them by name, reads their rows, and makes the tasks that train them again."""

import difflib
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.messages import Rows
from attnsweep.orchestrator.training.tasks import Task
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.errors import UserError

Place: TypeAlias = tuple[int, int]
"""Trial and replicate."""

_REPLAYED_SHARE, _MIN_REPLAYED, _MAX_REPLAYED = 0.01, 2, 1_000
"""If 1,000 random trainings end as recorded, then with 95% confidence at most 0.3% of the sweep's would not."""
_MAX_HINTS = 3


def find_training(ledger: Ledger, name: str) -> str:
    """`name` is an id, a unique prefix of one, or `TRIAL/REPLICATE`."""
    if re.fullmatch(r"\d{1,9}/\d{1,9}", name):
        trial, replicate = map(int, name.split("/"))
        condition = (pc.field("trial") == trial) & (pc.field("replicate") == replicate)
        matches = ledger.trainings(columns=["training_id"], filter=condition)["training_id"].to_pylist()
    else:
        matches = [training_id for training_id in _ids(ledger) if name and training_id.startswith(name)]
    if not matches:
        raise _unknown(ledger, name)
    if len(matches) > 1:
        hints = ", ".join(matches[:_MAX_HINTS])
        expected = f"the name of one training, but the names of {len(matches)} trainings begin with this text"
        fix = f"write more characters of the name: {hints}, ..."
        raise UserError("TRAINING_ID", given=name, expected=expected, fix=fix)
    return str(matches[0])


def recorded_rows(ledger: Ledger, training_ids: Sequence[str]) -> Rows:
    """From all tables. Raises UserError for an id that is not in the ledger."""
    is_wanted = pc.field("training_id").isin(training_ids)
    trainings = ledger.trainings(filter=is_wanted)
    if missing := {*training_ids} - {*trainings["training_id"].to_pylist()}:
        raise _unknown(ledger, min(missing))
    # By trial first: Arrow skips row groups without these, and would copy the list of ids for each group.
    in_trials = pc.field("trial").isin(trainings["trial"].unique().to_pylist())
    curves, heads = ledger.curves(filter=in_trials), ledger.heads(filter=in_trials)
    return Rows(trainings, curves.filter(is_wanted), heads.filter(is_wanted))


def recorded_tasks(workload: Workload[Any], trainings: pa.Table) -> list[Task]:
    return [
        Task(
            row["trial"],
            row["replicate"],
            Training(workload.parameters.recorded(row), row["seed"]),
            pruned_step=row["pruned_step"],
        )
        for row in trainings.to_pylist()
    ]


def recorded_training(ledger: Ledger, workload: Workload[Any], name: str) -> tuple[Mapping[str, Any], Rows, Task]:
    """Its row of `trainings`, its rows of all tables, and its task. `name`: as for `find_training`."""
    rows = recorded_rows(ledger, [find_training(ledger, name)])
    (row,), (task,) = rows.trainings.to_pylist(), recorded_tasks(workload, rows.trainings)
    return row, rows, task


def ended_training(
    directory: SweepDirectory, workload: Workload[Any], name: str, query: str
) -> tuple[Mapping[str, Any], Rows, Training[Any]]:
    """As `recorded_training`. Raises UserError, which shows the SQL `query`, if the last weights are not finite."""
    row, rows, task = recorded_training(Ledger(directory.place), workload, name)
    # A training may have diverged before it was pruned, which its outcome does not show.
    if row["outcome"] in ("failed", "diverged") or row["diverged_step"] is not None:
        given = f"the training {name} with the outcome {row['outcome']}"
        fix = f'list such trainings with: attnsweep query DIR "{query}"'
        raise UserError("TRAINING_ID", given=given, expected="a training whose last weights are finite", fix=fix)
    return row, rows, task.training


def by_training(rows: Rows) -> dict[Place, Rows]:
    def at(table: pa.Table, trial: int, replicate: int) -> pa.Table:
        return table.filter((pc.field("trial") == trial) & (pc.field("replicate") == replicate))

    places = zip(rows.trainings["trial"].to_pylist(), rows.trainings["replicate"].to_pylist(), strict=True)
    return {
        place: Rows(at(rows.trainings, *place), at(rows.curves, *place), rows.heads and at(rows.heads, *place))
        for place in places
    }


def to_replay(trainings: pa.Table, sweep_seed: int) -> list[str]:
    """The ids that the self-check repeats: 1% of those that did not fail, at least 2 and at most 1,000, at random but
    always the same."""
    ids = trainings.filter(pc.field("outcome") != "failed")["training_id"].to_pylist()
    n_chosen = min(max(math.ceil(_REPLAYED_SHARE * len(ids)), _MIN_REPLAYED), _MAX_REPLAYED)
    return sorted(ids, key=lambda name: hashlib.blake2b(f"{sweep_seed}/{name}".encode()).digest())[:n_chosen]


def _ids(ledger: Ledger) -> list[str]:
    ids: list[str] = ledger.trainings(columns=["training_id"])["training_id"].to_pylist()
    return ids


def _unknown(ledger: Ledger, name: str) -> UserError:
    similar = difflib.get_close_matches(name, _ids(ledger), n=_MAX_HINTS)
    expected = f"a training of {ledger.place}, by its id or TRIAL/REPLICATE"
    query = 'see: attnsweep query DIR "select training_id, trial, replicate from trainings"'
    fix = f"did you mean {' or '.join(similar)}?" if similar else query
    return UserError("TRAINING_ID", given=name, expected=expected, fix=fix)
