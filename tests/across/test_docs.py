"""The documents are correct: their examples run, their columns are the ledger's."""

import contextlib
import io
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from attnsweep.orchestrator.cli import app
from attnsweep.orchestrator.ledger.query import query_all
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.schema import BASE_COLUMNS, schemas_of
from attnsweep.search_spaces.loading import assignments, load_sweep
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.testing import check_workload, defaults
from tests.across.documents import DOCUMENTS, blocks, invocations
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows
from tests.orchestrator.trained_sweep import trained_sweep

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SWEEP = "sweeps/first"
ASKED = (SWEEP, "sweeps/edge", "sweeps/best", "sweeps/majority")
"""Sweeps whose documented queries are run on a small sweep of a reduced system."""
PLACES = ("sweeps/", "s3://")
SWEEPS = (
    *("my_sweep", "averages", "two_systems", "edge", "goals", "best", "needs", "adam_or_sgd", "copying"),
    *("recall", "own_recall", "modadd", "two_terms"),
)
"""The documents' files that are sweeps."""
SET_BY_A_READER = ("corpus=", "task=text", "base=", "language=majority")
"""Settings that need a file, a sweep or a language which only the reader has."""


def examples() -> dict[str, str]:
    """The documents' Python files by name: blocks that begin with `# <name>.py`."""
    # The files of languages.md extend the package: they have a test of their own.
    texts = [text for name, text in DOCUMENTS.items() if name != "languages.md"]
    found = [(re.match(r"# (\w+\.py)\n", block), block) for text in texts for block in blocks(text, "python")]
    return {name[1]: block for name, block in found if name}


def snippets(name: str) -> list[str]:
    """The Python blocks of a document that are not files."""
    return [block for block in blocks(DOCUMENTS[name], "python") if not re.match(r"# \w+\.py\n", block)]


def run_python(code: str, name: str) -> tuple[dict[str, Any], str]:
    """The names that a document's Python defines, and its output."""
    names: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), names)
    return names, printed.getvalue()


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The documents' Python files, and those of docs/examples, in a working directory of their own."""
    for example in EXAMPLES.glob("*.py"):
        shutil.copy(example, tmp_path)
    for name, block in examples().items():
        (tmp_path / name).write_text(block)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in examples():
        sys.modules.pop(name.removesuffix(".py"), None)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A small sweep in `sweeps/first` of the working directory."""
    monkeypatch.chdir(tmp_path)
    trials = [
        trial_rows(0, ["solved", "solved"], param_init_sigma=0.05, level_zero=1.0),
        trial_rows(1, ["degenerate_zero", "failed"], param_init_sigma=1e-3, level_zero=1.0),
    ]
    sweep_on_disk(tmp_path / SWEEP, small_sweep("first", replicates=2), *trials)
    return Ledger(tmp_path / SWEEP)


@pytest.mark.parametrize("name", SWEEPS)
def test_an_example_is_a_sweep_that_fits_its_workload(name: str, written: Path) -> None:
    sweep = load_sweep(f"{name}.py")
    check_sweep(sweep, load_workload(sweep.workload).parameters)
    assert sweep.name == name


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_settings_of_a_documented_run_fit_its_workload(name: str, written: Path) -> None:
    for line in invocations(DOCUMENTS[name]):
        command, *words = shlex.split(line)
        if command == "run" and "--set" in words:
            settings = [after for word, after in pairwise(words) if word == "--set"]
            settings = [each for each in settings if not each.startswith(SET_BY_A_READER)]
            sweep = load_sweep(words[0]).fix(assignments(settings))
            if "--trials" in words:
                sweep = sweep.but(trials=int(words[words.index("--trials") + 1]))
            check_sweep(sweep, load_workload(sweep.workload).parameters)


@pytest.mark.scale
@pytest.mark.slow
def test_the_tutorial_runs_and_prints_what_it_shows(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the tutorial trains a GPT-2: pip install 'attnsweep[hf]'")
    program = Path(__file__).parents[2] / "docs" / "execute_tutorial.py"
    done = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_example_problem_passes_the_conformance_suite(written: Path) -> None:
    run_python(examples()["check_recall.py"], "check_recall.py")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["own_recall.py", "two_terms.py"])
def test_a_recipe_holds_what_the_engine_relies_on(name: str, written: Path) -> None:
    workload = load_workload(load_sweep(name).workload)
    check_workload(
        workload, [defaults(workload, n_steps=20), defaults(workload, n_steps=20, init_sigma=0.1)], quick=True
    )


def test_the_python_of_the_readme_runs(ledger: Ledger) -> None:
    [snippet] = [block for block in snippets("README.md") if not block.startswith("def ")]
    assert " 0.333 " in run_python(snippet, "README.md")[1]


def test_the_python_of_docs_results_reads_the_ledger(ledger: Ledger) -> None:
    [snippet] = snippets("results.md")
    names, printed = run_python(snippet, "docs/results.md")
    assert "degenerate_zero" in printed
    assert names["table"].num_rows == names["rows"].num_rows == len(names["frame"]) == 4
    assert names["lazy"].collect().height == 4


def test_the_python_of_docs_ledger_reads_the_ledger(ledger: Ledger) -> None:
    [snippet] = snippets("ledger.md")
    assert "curves" in run_python(snippet, "docs/ledger.md")[0]


@pytest.mark.parametrize("block", snippets("roles.md")[:2], ids=["matrices", "sentences"])
def test_the_python_of_docs_roles_runs(block: str) -> None:
    assert run_python(block, "docs/roles.md")[1].startswith(("[ True  True] [ 0. -1.]", "(4, 2, 8) (4, 2, 8)"))


@pytest.mark.slow
def test_the_python_of_docs_analysis_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    sigma, rate = 10 ** rng.uniform(-4, 0, 40), 10 ** rng.uniform(-3, -1, 40)
    ends = [rng.choice(["solved", "degenerate_zero"], 4, p=[p, 1 - p]).tolist() for p in 0.1 + 0.8 * (sigma > 0.01)]
    given = (
        {"param_init_sigma": s, "param_learning_rate": r, "onset_step": 4} for s, r in zip(sigma, rate, strict=True)
    )
    trials = (trial_rows(trial, ends[trial], **each) for trial, each in enumerate(given))
    sweep_on_disk(tmp_path / SWEEP, small_sweep("first", trials=40), *trials)
    names, printed = run_python("\n".join(snippets("analysis.md")), "docs/analysis.md")
    assert "lines on which half are stuck" in printed
    assert "stuck rate changed by +0.00" in printed
    assert names["importances"].keys() == {"init_sigma", "learning_rate"}


@pytest.mark.scale
@pytest.mark.slow
def test_the_python_of_docs_export_loads_what_its_commands_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in ("safetensors", "transformers", "datasets"):
        pytest.importorskip(library, reason=f"no {library}: pip install 'attnsweep[test]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    fixed: dict[str, Value] = {"qk": "factored", "n_steps": 60, "probe_every": 20, "eval_batch_size": 16}
    trained_sweep(tmp_path / "sweeps" / "gpt", load_sweep("gpt_stages").fix(fixed).but(trials=1, replicates=4))
    for line in invocations(DOCUMENTS["export.md"]):
        if line.startswith("export ") and "--out" in line:
            assert CliRunner().invoke(app, shlex.split(line, comments=True)).exit_code == 0, line
    names, printed = run_python("\n".join(snippets("export.md")[:-2]), "docs/export.md")
    assert printed.splitlines()[1:] == [
        f"{names['trainings']['training_id'][3]} 60",
        "4 ['training_id', 'trial', 'replicate', 'step', 'metric', 'value']",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "at", "written"), [("wandb", -2, "wandb/offline-*"), ("tensorboard", -1, "logs/*/*")]
)
def test_the_recipes_of_docs_export_write_a_run_per_trial(
    library: str, at: int, written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(library, reason=f"no {library}: pip install {library}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    trials = (trial_rows(trial, ["solved", "degenerate_zero"]) for trial in range(2))
    sweep_on_disk(tmp_path / "sweeps" / "gpt", small_sweep("gpt", trials=2, replicates=2), *trials)
    run_python(snippets("export.md")[at], "docs/export.md")
    assert len([*tmp_path.glob(written)]) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_queries_of_a_document_run(name: str, ledger: Ledger) -> None:
    told = [shlex.split(line) for line in invocations(DOCUMENTS[name]) if line.startswith("query ")]
    asked = [next(word for word in words[1:] if not word.startswith(PLACES)) for words in told if words[1] in ASKED]
    queries = [sql for sql in asked if "$(" not in sql]
    queries += blocks(DOCUMENTS[name], "sql")
    assert queries or name not in ("README.md", "results.md", "outcomes.md")
    for sql in queries:
        assert query_all([ledger], sql).num_rows > 0, sql


def test_the_python_of_docs_grammar_runs() -> None:
    assert " -> " in run_python(snippets("grammar.md")[0], "docs/grammar.md")[1]


@pytest.mark.parametrize("table", ["trainings", "curves", "heads"])
def test_docs_ledger_lists_the_columns_of_the_schema(table: str) -> None:
    schema = schemas_of(CategoryPairs)[table] if table == "trainings" else BASE_COLUMNS[table]
    names = "|".join(schema.names)
    assert {*schema.names} == {*re.findall(rf"^\| `({names})` \|", DOCUMENTS["ledger.md"], re.MULTILINE)}


def test_docs_ledger_lists_the_columns_of_the_trials_view(ledger: Ledger) -> None:
    section = DOCUMENTS["ledger.md"].partition("## `trials`")[2]
    listed = re.findall(r"^\| `(\w+)`", section, re.MULTILINE)
    columns = [name for name in query_all([ledger], "from trials").column_names if not name.startswith("param_")]
    assert listed == columns
