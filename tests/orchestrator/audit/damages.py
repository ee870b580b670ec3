"""Damages to a sweep's ledger and study, and the problems that the audit must report."""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from optuna.trial import TrialState

from attnsweep.orchestrator.audit.problems import Audit
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SweepDirectory
from tests.orchestrator.small_sweep import folder_of
from tests.orchestrator.trained_sweep import edit, edit_row, records

Damage = Callable[[SweepDirectory], None]


def problems_of(found: Audit) -> list[str]:
    return [str(problem) for problem in found.problems]


def lines_of(found: Audit) -> list[str]:
    return [check.line for check in found.checks]


def drop(table: str, **wanted: Any) -> Damage:
    """Removes the rows that have all of these values."""

    def damage(directory: SweepDirectory) -> None:
        def change(rows: pa.Table) -> pa.Table:
            kept = [row for row in rows.to_pylist() if any(row[name] != value for name, value in wanted.items())]
            assert len(kept) < rows.num_rows
            return pa.Table.from_pylist(kept, rows.schema)

        edit(directory, table, change)

    return damage


def _add(table: str, **values: Any) -> Damage:
    """Adds a row: a copy of the first, with other values."""

    def damage(directory: SweepDirectory) -> None:
        def change(rows: pa.Table) -> pa.Table:
            held = rows.to_pylist()
            first = held[0] if held else {"step": 0, "layer": 0, "head": 0, "role": "none"}
            return pa.Table.from_pylist([*held, first | values], rows.schema)

        edit(directory, table, change)

    return damage


def set_values(place: int, **values: Any) -> Damage:
    """Changes values of one row of `trainings`."""
    return lambda directory: edit_row(directory, "trainings", place, **values)


def _edit_journal(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Damage:
    """Changes the entries of the study's journal."""

    def damage(directory: SweepDirectory) -> None:
        file = folder_of(directory) / STUDY_FILE
        entries = change([json.loads(line) for line in file.read_text().splitlines()])
        file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))

    return damage


def _journal(is_meant: Callable[[dict[str, Any]], bool], **values: Any) -> Damage:
    """Changes entries of the study's journal; without values, removes the first and all that follow."""

    def change(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if values:
            return [entry | values if is_meant(entry) else entry for entry in entries]
        return entries[: next(index for index, entry in enumerate(entries) if is_meant(entry))]

    return _edit_journal(change)


def undrawn(trial: int, *names: str) -> Damage:
    """Removes the drawn values of some parameters of a trial."""

    def change(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        drawn = [entry for entry in entries if "datetime_start" in entry][trial]
        for name in names:
            del drawn["params"][name], drawn["distributions"][name]
        return entries

    return _edit_journal(change)


def _told(trial: int) -> Callable[[dict[str, Any]], bool]:
    return lambda entry: "values" in entry and "state" in entry and entry.get("trial_id") == trial


def _lose_the_last_trial(directory: SweepDirectory) -> None:
    def change(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        last_asked = max(index for index, entry in enumerate(entries) if "datetime_start" in entry)
        return [entry for index, entry in enumerate(entries) if index != last_asked and entry.get("trial_id") != 9]

    for table in ("trainings", "curves"):
        drop(table, trial=9)(directory)
    _edit_journal(change)(directory)


def _asked_and_half_drawn(directory: SweepDirectory) -> None:
    file = folder_of(directory) / STUDY_FILE
    asked = next(line for line in reversed(file.read_text().splitlines()) if '"datetime_start"' in line)
    with file.open("a") as journal:
        journal.write(json.dumps(json.loads(asked) | {"params": {}, "distributions": {}}) + "\n")


def _never_failed(directory: SweepDirectory) -> None:
    for row in records(directory, trial=8):
        set_values(row["place"], outcome="plateau")(directory)


_RUN = "1 runs of the sweep with another number of trainings: "
_VALUE = "1 trials whose run has another value than the ledger: "
_TOLD = "1 trials whose value in the study is not that of their trainings: "
_PARAMETER = "1 trainings with another value of {} than the study has: 1/2; restore the folders"
_ID = "1 trainings whose id is not that of their parameters and seed: "
_SEED = "1 trainings with another seed than the sweep gives them: "
_BARE = "trainings that did not fail and have no curves: "
_HALF_DRAWN = "1 trials trained although half drawn: 3 ({} missing); restore the study, or leave them out"
_NOT_TOLD = "1 trials asked for and never told: {}; continue with: attnsweep resume DIR"

DAMAGES: dict[str, tuple[Damage, list[str]]] = {
    "a training lost": (
        drop("trainings", trial=3, replicate=1),
        [
            "1 trials told without all their trainings: 3 (1 of 3 missing); continue with: attnsweep resume DIR",
            "1 trainings with rows in curves only: 3/1; remove the files",
            _RUN,
            "1 runs of incomplete trials: 3 (",
        ],
    ),
    "a row twice": (
        _add("trainings"),
        ["1 trainings recorded more than once: 0/0; set files that repeat others aside with: attns", _RUN, _VALUE],
    ),
    "a replicate too many": (
        _add("trainings", replicate=3),
        [
            "1 trainings beyond those that their trial needs: 0/3; remove the files",
            *(f"{_SEED}0/3", f"{_ID}0/3", f"1 {_BARE}0/3", _RUN, "1 runs of incomplete trials"),
        ],
    ),
    "a trial nobody asked for": (
        _add("trainings", trial=77, outcome="failed"),
        ["1 trials trained that were never asked for: 77; restore the study, or remove", _RUN],
    ),
    "a refused trial's row": (
        _add("trainings", trial=4, outcome="failed"),
        ["1 trials refused, yet trained: 4; remove the files", _RUN],
    ),
    "another number": (set_values(5, param_init_sigma=0.125), [_PARAMETER.format("init_sigma"), f"{_VALUE}1 ("]),
    "another text": (set_values(5, param_dtype="float32"), [_PARAMETER.format("dtype"), f"{_VALUE}1 ("]),
    "a null": (set_values(5, param_init_sigma=None), [_PARAMETER.format("init_sigma"), f"{_VALUE}1 ("]),
    "another seed": (set_values(7, seed=3), [f"{_SEED}2/1; restore"]),
    "another id": (
        set_values(7, training_id="abc"),
        [f"{_ID}2/1; restore", "1 trainings with rows in curves only: 2/1; remove", f"1 {_BARE}2/1; restore"],
    ),
    "another sweep's row": (
        set_values(7, sweep="other"),
        ["1 trainings of another sweep: 2/1; remove the files", f"{_VALUE}2 ("],
    ),
    "another outcome": (
        set_values(0, outcome="runaway", stuck=True),
        [f"{_TOLD}0 (0.0, not 0.3333333333333333)", f"{_VALUE}0 ("],
    ),
    "failed after all": (
        _never_failed,
        [f"{_TOLD}8 (None, not 0.0)", f"3 {_BARE}8/0, 8/1, 8/2; restore", f"{_VALUE}8 ("],
    ),
    "curves lost": (drop("curves", trial=5, replicate=0), [f"1 {_BARE}5/0; restore"]),
    **{
        f"{table} of nobody": (
            _add(table, training_id="abc", trial=9, replicate=9),
            [f"1 trainings with rows in {table} only: 9/9; remove the files"],
        )
        for table in ("curves", "heads")
    },
    "another value told": (_journal(_told(2), values=[0.75]), [f"{_TOLD}2 (0.75, not 0.0); restore the study"]),
    "the last trial not told": (_journal(_told(8)), [_NOT_TOLD.format(8)]),
    "a refused trial not told": (_journal(_told(4), state=TrialState.RUNNING.value), [_NOT_TOLD.format("4 (refused)")]),
    "a trial half drawn": (undrawn(3, "init_sigma"), [_HALF_DRAWN.format("init_sigma")]),
    "a trial without what another parameter depends on": (undrawn(3, "optimizer"), [_HALF_DRAWN.format("optimizer")]),
    "a trial half drawn and not trained": (
        _asked_and_half_drawn,
        [
            "1 trials left half drawn by a kill: 10 (raises, variant, optimizer, init_sigma missing); continue with: ",
            _NOT_TOLD.format(10),
            "study.journal: lines of another program that are no notes: 25; restore it from a copy",
        ],
    ),
    "a trial lost altogether": (
        _lose_the_last_trial,
        [
            "1 fewer trials than the budget: 9 of 10; continue with: attnsweep resume DIR",
            *(_RUN, "1 runs of incomplete trials: 9 ("),
        ],
    ),
    "a trial that another program pruned": (
        _journal(_told(2), state=2),
        ["1 trials in a state that attnsweep does not know: 2 (PRUNED); restore the study"],
    ),
    "a column gone": (
        lambda directory: edit(directory, "trainings", lambda rows: rows.drop_columns("param_momentum")),
        [
            "not checked: parameters, seeds and ids: the workload's declaration of momentum has changed since the "
            "training; audit it with the version"
        ],
    ),
}
