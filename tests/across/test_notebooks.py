"""The examples of docs/notebooks.md run, smaller than they stand there."""

import re
import sys
from pathlib import Path

import pytest

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from tests.across.test_docs import examples, run_python, snippets

SMALL_TRANSLATORS = '"n_sentences": 400, "batch_size": 100, "n_heads": 2, "d_model": 4, "d_ffn": 4, "n_probes": 2'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "smaller", "last"),
    [
        pytest.param(
            0,
            {"trials=64": "trials=12", "replicates=8": "replicates=2", '"n_steps": 250': '"n_steps": 2'},
            "rates",
            marks=pytest.mark.scale,
        ),
        pytest.param(
            1,
            {"replicates=8": "replicates=2", '"n_epochs": 3': SMALL_TRANSLATORS},
            "emergence",
            marks=pytest.mark.scale,
        ),
        (2, {'"n_steps": 150': '"n_steps": 60'}, "found"),
    ],
    ids=["plane", "roles", "own"],
)
def test_an_example_of_docs_notebooks_runs(
    place: int,
    smaller: dict[str, str],
    last: str,
    tmp_path: Path,
    mlflow_database: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "find_first.py").write_text(examples()["find_first.py"])
    block = snippets("notebooks.md")[place]
    for given, less in smaller.items():
        assert block.count(given) == 1
        block = block.replace(given, less)
    names, _ = run_python(block, "docs/notebooks.md")
    assert "<table>" in names[last]._repr_html_()
    directory = SweepDirectory.open(re.findall(r'run_sweep\(spec, "([^"]+)"', block)[0])
    assert directory.finished
    assert "trainings/s" in capfd.readouterr().err
    sys.modules.pop("find_first", None)
