"""Untrusted SQL over a ledger can read only four views, whatever it contains and whatever names are in the files."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnsweep import open_sweep
from attnsweep.orchestrator.ledger import query
from attnsweep.orchestrator.ledger.query import query_all
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.workloads.errors import UserError
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows

NOT_A_QUERY = [
    "CREATE TABLE planted AS SELECT 1",
    "EXPORT DATABASE '{root}/x'",
    "SET threads = 1",
    "INSTALL httpfs",
    "COPY trainings TO '/dev/stdout'",
    "SELECT 1; CREATE TABLE planted AS SELECT 1",
    "SELECT 1; RESET lock_configuration",
]
REFUSED = [
    "FROM '/etc/passwd'",
    "FROM read_text('/etc/passwd')",
    "FROM parquet_file_metadata('{root}/trainings/*.parquet')",
    "FROM read_parquet('s3://bucket/x')",
    "FROM query('COPY trainings TO ''{root}/x.csv''')",
    "FROM python_variable",
    "SELECT getenv('PLANTED')",
    "SELECT * FROM pragma_import_database('{root}')",
    "WITH x AS (INSERT INTO trainings SELECT * FROM trainings RETURNING *) FROM x",
]


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    homes = [tmp_path_factory.mktemp("sweeps") / name for name in ('it\'s "one"', "two; --")]
    for number, home in enumerate(homes):
        sweep_on_disk(home, small_sweep(f"s{number}"), trial_rows(number, ["solved"] * 4))
    return homes[0], homes[1]


def _one(roots: tuple[Path, Path], sql: str) -> pa.Table:
    return query_all([Ledger(roots[0])], sql)


def test_what_is_no_query_is_not_run(roots: tuple[Path, Path]) -> None:
    for sql in NOT_A_QUERY:
        with pytest.raises(UserError):
            pytest.fail(f"{sql}: {_one(roots, sql.format(root=roots[0]))}")


def test_a_query_sees_no_file_network_environment_or_variable(
    roots: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", "planted-secret")
    python_variable = pa.table({"a": [1]})
    before = _files(roots)
    for sql in REFUSED:
        with pytest.raises(UserError):
            pytest.fail(f"{sql}: {_one(roots, sql.format(root=roots[0].parent))}")
    assert python_variable.num_rows == 1
    assert _files(roots) == before


def test_a_connection_of_ones_own_is_locked_too(roots: tuple[Path, Path]) -> None:
    """A query may define anything, but only in its own memory."""
    for connection in (Ledger(roots[0]).connect(), open_sweep(*roots).connect()):
        with connection:
            connection.execute("CREATE OR REPLACE VIEW trials AS SELECT 7 AS planted")
            # DuckDB would write into `.tmp`, the folder to which it spills, although all others are disabled.
            for sql in ("COPY trainings TO 'x.csv'", "COPY trainings TO '.tmp/x.csv'", "SET temp_directory = '.'"):
                with pytest.raises(Exception, match=r"disabled|locked"):
                    connection.execute(sql)
    assert "planted" not in query_all([Ledger(roots[0])], "FROM trials").column_names


def test_names_of_columns_in_files_are_no_sql(tmp_path: Path) -> None:
    """Without quoting, the names in such a file could write anywhere as soon as somebody looks at the sweep."""
    target = tmp_path / "planted.csv"
    name = f"""param_x") = 1 THEN 1 END AS a FROM judged GROUP BY ALL) SELECT 1; COPY (SELECT 1) TO '{target}'; --"""
    space = {**small_sweep("s").space, name.removeprefix("param_"): 1}
    directory = sweep_on_disk(tmp_path / "s", small_sweep("s", space=space), trial_rows(0, ["solved"] * 4))
    (file,) = (directory.place / "trainings").glob("*.parquet")
    table = pq.read_table(file).append_column(name, pa.array([1] * 4))
    pq.write_table(table, file)
    assert query_all([Ledger(directory.place)], "FROM trials").column_names.count(name) == 1
    opened = open_sweep(directory.place)
    assert opened.stuck_rates([name.removeprefix("param_")])["n_trials"].to_pylist() == [1, 1]
    assert not target.exists()


def test_a_query_cannot_take_the_machines_memory(roots: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "ANSWER_BYTES", 50_000_000)
    with pytest.raises(UserError):
        _one(roots, "FROM range(1000000000000)")


def _files(roots: tuple[Path, Path]) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for root in roots for path in root.parent.rglob("*")}
