"""SQL over a ledger: the views, and output formats. What a query may not do: `tests/security/test_hostile_sql.py`."""

import csv
import io
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from attnsweep.orchestrator.ledger.compaction import compact
from attnsweep.orchestrator.ledger.query import query_all, render
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.views import TRIAL_COLUMNS
from tests.orchestrator.ledger.ledger_rows import WITHOUT_HEADS, commit, open_writer, pack_rows, training_rows


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Two trials: three judged trainings and a failed one; and one that diverged in half of its trainings."""
    later = {"finished_at": datetime(2025, 11, 2, tzinfo=UTC)}
    trainings: list[tuple[int, int, str, float | None, float | None, dict[str, Any]]] = [
        (0, 0, "solved", 1.0, 0.1, {}),
        (0, 1, "marginal", 2.0, 0.1, {"stuck": True}),
        (0, 2, "failed", None, 0.1, {"error": "boom"}),
        (0, 3, "plateau", 4.0, 0.1, {}),
        (1, 0, "solved", 1.0, 0.2, later),
        (1, 1, "diverged", None, None, {}),
    ]
    names = ("trial", "replicate", "outcome", "eval_loss", "param_init_sigma")
    rows = [dict(zip(names, values, strict=False)) | values[-1] for values in trainings]
    root = tmp_path / "it's [a] sweep*"
    root.mkdir()
    with open_writer(root) as writer:
        writer.commit("p0", *pack_rows("p0", [(9, 0)]))
        for pack, some in (("q0", rows[:4]), ("q1", rows[4:])):
            writer.commit(pack, training_rows(pack, *some), None, None)
    return Ledger(root)


def test_trials_sum_up_their_trainings(ledger: Ledger) -> None:
    first, second, _ = query_all([ledger], "FROM trials").to_pylist()
    named = {name: value for name, value in first.items() if not name.startswith("param_")}
    noon = datetime(2025, 11, 1, 12, tzinfo=UTC)
    assert named == {
        "sweep": "quick-1",
        "trial": 0,
        "workload": "category_pairs",
        "variant": None,
        "n_trainings": 4,
        "n_failed": 1,
        "n_pruned": 0,
        "n_judged": 3,
        "n_stuck": 1,
        "n_solved": 1,
        "stuck_rate": 1 / 3,
        "solved_rate": 1 / 3,
        "loss_q25": 1.5,
        "loss_median": 2.0,
        "loss_q75": 3.0,
        "seconds": 2.0,
        "first_finished_at": noon,
        "last_finished_at": noon,
    }
    assert first["param_init_sigma"] == 0.1
    assert second["param_init_sigma"] is None
    assert second["solved_rate"] == 0.5
    assert (second["loss_q25"], second["loss_median"], second["loss_q75"]) == (None, None, None)
    assert second["first_finished_at"] < second["last_finished_at"]


def test_each_column_of_trials_is_explained(ledger: Ledger) -> None:
    columns = query_all([ledger], "from trials").column_names
    families = ("param_<name>" if name.startswith("param_") else name for name in columns)
    assert [*TRIAL_COLUMNS] == [*dict.fromkeys(families)]


def test_a_sweep_without_rows_has_all_views(tmp_path: Path) -> None:
    with open_writer(tmp_path, WITHOUT_HEADS):
        ledger = Ledger(tmp_path)
    for view, column in (
        ("trainings", "outcome"),
        ("curves", "metric"),
        ("heads", "role"),
        ("trials", "stuck_rate"),
        ("trials", "param_learning_rate"),
    ):
        answer = query_all([ledger], f"SELECT {column} FROM {view}")
        assert (answer.column_names, answer.num_rows) == ([column], 0)
    assert ledger.heads().num_rows == 0


def test_a_connection_outlives_a_compaction(tmp_path: Path) -> None:
    commit(tmp_path, 0, 1, 2, n_replicates=1)
    with Ledger(tmp_path).connect() as connection:
        compact(tmp_path)
        commit(tmp_path, 3)
        for _ in range(2):
            assert connection.sql("SELECT count(*), sum(value) FROM curves").fetchall() == [(18, 18.0)]


SQL = """
SELECT trial, 'a,"b"' AS word, 0.1 + trial AS x, 'nan'::DOUBLE AS nan, NULL AS nothing, TRUE AS yes, sum(n_steps) AS s,
       max(finished_at) AS at, [1.5, 'inf'::DOUBLE] AS list, 2.5::DECIMAL(4, 1) AS half
FROM trainings WHERE trial < 2 GROUP BY trial ORDER BY trial
"""


def test_json_is_a_list_of_records(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    render(query_all([ledger], SQL), "json", None)
    first, second = json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(word))
    assert first == {
        "trial": 0,
        "word": 'a,"b"',
        "x": 0.1,
        "nan": None,
        "nothing": None,
        "yes": True,
        "s": 40,
        "at": "2025-11-01T12:00:00+00:00",
        "list": [1.5, None],
        "half": 2.5,
    }
    assert second["at"] == "2025-11-02T00:00:00+00:00"
    render(query_all([ledger], "FROM trials WHERE trial > 99"), "json", None)
    assert json.loads(capsys.readouterr().out) == []


UNUSUAL = {
    "INTERVAL '14 months 3 days 2 hours'": "1 year 2 months 3 days 02:00:00",
    "[union_value(a := 1)]": "[1]",
    "340282366920938463463374607431768211455::UHUGEINT": "340282366920938463463374607431768211455",
    "TIMETZ '12:00:00+01'": "12:00:00+01",
}
"""Values that Arrow changes, or that Parquet has no type for."""


@pytest.mark.parametrize("value", UNUSUAL)
def test_every_type_of_value_is_written_in_every_format(
    value: str, ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = query_all([ledger], f"SELECT {value} AS v, 1 AS v, DATE '2025-11-01' AS day")
    render(answer.remove_column(1), "json", None)
    assert json.loads(capsys.readouterr().out)[0]["day"] == "2025-11-01"
    render(answer, "csv", None)
    assert list(csv.reader(io.StringIO(capsys.readouterr().out)))[1:] == [[UNUSUAL[value], "1", "2025-11-01"]]
    render(answer, "table", None)
    assert UNUSUAL[value] in capsys.readouterr().out
    render(answer, "parquet", tmp_path / "out.parquet")
    assert pq.ParquetFile(tmp_path / "out.parquet").metadata.num_rows == 1


@pytest.mark.slow
def test_nobody_has_to_read_the_answer() -> None:
    ledger = Path(__file__).parents[3] / "docs" / "ledgers" / "quickstart"
    program = "import os, sys; os.close(1); sys.stdout = None; from attnsweep.orchestrator import cli; cli.main()"
    words = [sys.executable, "-c", program, "query", str(ledger), "from trials"]
    assert subprocess.run(words, capture_output=True, check=True).stderr == b""
