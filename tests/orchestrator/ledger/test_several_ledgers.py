"""One query over several sweeps: columns are matched by name, and each row has its sweep's name."""

from pathlib import Path

import pyarrow as pa
import pytest

from attnsweep.orchestrator.ledger.query import query_all
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.schema import trainings_schema
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.formal_languages.parameters import FormalLanguagesParameters
from tests.orchestrator.ledger.ledger_rows import CURVES, WITHOUT_HEADS, open_writer, pack_rows, training_rows

LANGUAGES = trainings_schema(FormalLanguagesParameters, ("chance",))


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """A sweep of `category_pairs` with heads, one of `formal_languages` without, and one without rows."""
    paths = [tmp_path / name for name in ("pairs", "languages", "empty")]
    for path in paths:
        path.mkdir()
    with open_writer(paths[0]) as writer:
        _, curves, heads = pack_rows("p0", [(0, 0), (0, 1)])
        rows = [{"trial": 0, "replicate": n, "sweep": "it's pairs", "param_n_categories": 5} for n in (0, 1)]
        writer.commit("p0", training_rows("p0", *rows), curves, heads)
    with open_writer(paths[1], {"trainings": LANGUAGES, "curves": CURVES}, "f" * 64) as writer:
        shared = training_rows("p0", {"trial": 0, "replicate": 0, "sweep": "languages"}).to_pylist()[0]
        record = {name: shared.get(name) for name in LANGUAGES.names} | {"param_language": "first"}
        writer.commit("p0", pa.Table.from_pylist([record], LANGUAGES), pack_rows("p0", [(0, 0)])[1], None)
    with open_writer(paths[2], WITHOUT_HEADS):
        pass
    return paths


def _ask(roots: list[Path], sql: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = query_all([Ledger(root) for root in roots], sql).to_pylist()
    return rows


def test_a_column_that_a_sweep_lacks_is_null_in_its_rows(roots: list[Path]) -> None:
    columns = "sweep, replicate, param_n_categories, param_language"
    assert _ask(roots, f"SELECT {columns} FROM trainings ORDER BY ALL") == [
        {"sweep": "it's pairs", "replicate": 0, "param_n_categories": 5, "param_language": None},
        {"sweep": "it's pairs", "replicate": 1, "param_n_categories": 5, "param_language": None},
        {"sweep": "languages", "replicate": 0, "param_n_categories": None, "param_language": "first"},
    ]


def test_trials_of_the_same_number_stay_apart(roots: list[Path]) -> None:
    assert _ask(roots, "SELECT sweep, trial, n_trainings FROM trials ORDER BY sweep") == [
        {"sweep": "it's pairs", "trial": 0, "n_trainings": 2},
        {"sweep": "languages", "trial": 0, "n_trainings": 1},
    ]


def test_a_sweep_given_twice_is_refused(roots: list[Path]) -> None:
    with pytest.raises(UserError) as refused:
        _ask([roots[1], roots[0], roots[1]], "FROM trials")
    says = "DIR: got 'the sweep languages, named twice', expected different sweeps; name each sweep once"
    assert str(refused.value) == says
