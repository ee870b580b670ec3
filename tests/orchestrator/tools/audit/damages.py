"""Damages to a sweep's ledger and study, and the problems that the audit must report."""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from optuna.trial import TrialState

from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SweepDirectory
from attnsweep.orchestrator.tools.audit.problems import Audit
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
        file = directory.place / STUDY_FILE
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


def undrawn(trial: int, name: str) -> Damage:
    """Removes the drawn value of a parameter of a trial."""

    def change(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        drawn = [entry for entry in entries if "datetime_start" in entry][trial]
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


def _never_failed(directory: SweepDirectory) -> None:
    for row in records(directory, trial=8):
        set_values(row["place"], outcome="plateau")(directory)


DAMAGES: dict[str, tuple[Damage, int, str]] = {
    "a training lost": (drop("trainings", trial=3, replicate=1), 4, "3/1"),
    "a row twice": (_add("trainings"), 2, "0/0"),
    "a replicate too many": (_add("trainings", replicate=3), 6, "0/3"),
    "a trial nobody asked for": (_add("trainings", trial=77, outcome="failed"), 2, "77"),
    "a refused trial's row": (_add("trainings", trial=4, outcome="failed"), 3, "4"),
    "another number": (set_values(5, param_init_sigma=0.125), 1, "1/2"),
    "a null": (set_values(5, param_init_sigma=None), 1, "1/2"),
    "another seed": (set_values(7, seed=3), 1, "2/1"),
    "another id": (set_values(7, training_id="abc"), 3, "2/1"),
    "another sweep's row": (set_values(7, sweep="other"), 1, "2/1"),
    "a file of another sweep": (
        lambda directory: edit(directory.but(spec_sha256="f" * 64), "trainings", lambda rows: rows),
        1,
        "trainings/edited-",
    ),
    "another outcome": (set_values(0, outcome="runaway", stuck=True), 1, "0 (0.0"),
    "failed after all": (_never_failed, 2, "8/0, 8/1, 8/2"),
    "curves lost": (drop("curves", trial=5, replicate=0), 1, "5/0"),
    **{
        f"{table} of nobody": (_add(table, training_id="abc", trial=9, replicate=9), 1, "9/9")
        for table in ("curves", "heads")
    },
    "another value told": (_journal(_told(2), values=[0.75]), 1, "2 (0.75, not 0.0)"),
    "the last trial not told": (_journal(_told(8)), 1, "8"),
    "a refused trial not told": (_journal(_told(4), state=TrialState.RUNNING.value), 1, "4 (refused)"),
    "a trial half drawn": (undrawn(3, "init_sigma"), 1, "3 ("),
    "a trial lost altogether": (_lose_the_last_trial, 3, "9 of 10"),
    "a trial that another program pruned": (_journal(_told(2), state=2), 1, "ledger alone: 2"),
    "a column gone": (
        lambda directory: edit(directory, "trainings", lambda rows: rows.drop_columns("param_momentum")),
        1,
        "momentum",
    ),
}
"""The damage, the number of problems that the audit tells of it, and what they name."""
