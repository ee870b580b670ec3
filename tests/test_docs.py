"""What the documents say is so: their examples run, their commands exist, their columns are the ledger's."""

import contextlib
import io
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.main import get_group

from orchestrator.cli import app
from orchestrator.ledger.reader import Ledger
from orchestrator.ledger.schema import curves_schema, heads_schema, trainings_schema
from orchestrator.ledger.writer import LedgerWriter
from orchestrator.query import run_query
from orchestrator.records import PackContext, curve_rows, head_rows, trained_rows
from orchestrator.sweep_directory import SweepDirectory
from orchestrator.tasks import Task
from search_spaces.loading import load_sweep
from search_spaces.validation import check_sweep
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows
from workloads.category_pairs import CategoryPairs
from workloads.engine.contract import OUTCOMES, Training
from workloads.engine.judging import judged
from workloads.engine.pack import Pack
from workloads.parameters import Value
from workloads.registry import load_workload
from workloads.testing import defaults

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
DOCUMENTS = {path.name: path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
COMMANDS = get_group(app).commands
SWEEP = "sweeps/first"
ASKED = (SWEEP, "sweeps/edge")
"""Sweeps of reduced systems: their queries run on a small one."""
PLACES = ("sweeps/", "s3://")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def examples() -> dict[str, str]:
    """The README's Python files by name: blocks that begin with `# <name>.py`."""
    named = [(re.match(r"# (\w+\.py)\n", block), block) for block in blocks(README, "python")]
    return {name[1]: block for name, block in named if name}


def invocations(text: str) -> list[str]:
    """Every `attnsweep ...` in a document's code."""
    shell = [line for block in blocks(text, "bash") for line in block.splitlines()]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
    return [found[1] for line in (*shell, *spans) if (found := re.search(r"(?:^|[/ ])attnsweep ([a-z].*)$", line))]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The README's Python files in a working directory of their own."""
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


def test_the_readme_has_its_examples() -> None:
    assert list(examples()) == ["my_sweep.py", "find_first.py", "check_find_first.py"]


@pytest.mark.parametrize("name", ["my_sweep.py", "find_first.py"])
def test_an_example_is_a_sweep_that_fits_its_workload(name: str, written: Path) -> None:
    sweep = load_sweep(name)
    check_sweep(sweep, load_workload(sweep.workload).parameters)
    assert sweep.name == name.removesuffix(".py")


def test_the_example_workload_passes_the_conformance_suite(written: Path) -> None:
    exec(compile(examples()["check_find_first.py"], "check_find_first.py", "exec"), {})


def test_the_readmes_python_reads_the_ledger(ledger: Ledger) -> None:
    [snippet] = [block for block in blocks(README, "python") if not block.startswith("# ")]
    names: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(snippet, "README.md", "exec"), names)
    assert "degenerate_zero" in printed.getvalue()
    assert names["rows"].num_rows == len(names["frame"]) == names["lazy"].collect().height == 4


@pytest.mark.parametrize("block", blocks(DOCUMENTS["roles.md"], "python")[:2], ids=["matrices", "sentences"])
def test_the_python_of_docs_roles_runs(block: str) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "docs/roles.md", "exec"), {})
    assert printed.getvalue().startswith(("[ True  True] [ 0. -1.]", "(4, 2, 8) (4, 2, 8)"))


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
    printed = io.StringIO()
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(printed):
        for block in blocks(DOCUMENTS["analysis.md"], "python"):
            exec(compile(block, "docs/analysis.md", "exec"), names)
    assert "lines on which half are stuck" in printed.getvalue()
    assert "stuck rate changed by +0.00" in printed.getvalue()
    assert {each.parameter for each in names["found"].parameters} == {"init_sigma", "learning_rate"}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_queries_of_a_document_run(name: str, ledger: Ledger) -> None:
    told = [shlex.split(line) for line in invocations(DOCUMENTS[name]) if line.startswith("query ")]
    asked = [next(word for word in words[1:] if not word.startswith(PLACES)) for words in told if words[1] in ASKED]
    queries = [sql for sql in asked if "$(" not in sql]
    queries += blocks(DOCUMENTS[name], "sql")
    assert queries or name not in ("README.md", "outcomes.md")
    for sql in queries:
        assert run_query(ledger, sql).num_rows > 0, sql


def trained_ledger(path: Path, name: str, settings: list[dict[str, Value]]) -> Ledger:
    """A workload's trainings, one for each of the settings."""
    workload = load_workload(name)
    tasks = [Task(0, index, Training(defaults(workload, **values), index)) for index, values in enumerate(settings)]
    directory = SweepDirectory.create(path / name, small_sweep(name, workload=name), {})
    schema = trainings_schema(workload.parameters, workload.level_names)
    with LedgerWriter(directory.path, schema, heads_schema(workload.head_score_names), "sha") as writer:
        for task in tasks:
            pack = Pack(workload, [task.training])
            while not pack.advance(100):
                pass
            result, context = pack.result(), PackContext(name, f"{task.replicate}")
            verdicts = judged(workload, task.training.parameters, result.evidence)
            rows = trained_rows(workload, [task], result, verdicts, [None], context)
            curves = curve_rows(workload, [task], result)
            writer.commit(f"{task.replicate}", rows, curves, head_rows(workload, [task], result))
    return Ledger(directory.path)


def queries_on(document: str, sweep: str) -> list[str]:
    told = [shlex.split(line) for line in invocations(DOCUMENTS[document]) if line.startswith("query ")]
    return [words[2] for words in told if words[1] == sweep]


def test_the_queries_on_formal_languages_run(tmp_path: Path) -> None:
    values = {"language": "parity", "train_length": 2, "n_steps": 20, "eval_batch_size": 4, "longest_test_length": 20}
    ledger = trained_ledger(tmp_path, "formal_languages", [values, values])
    queries = queries_on("outcomes.md", "sweeps/parity_learnability")
    assert len(queries) == 2
    for sql in queries:
        assert run_query(ledger, sql).num_rows > 0, sql


def test_the_queries_on_translators_run(tmp_path: Path) -> None:
    small = {"n_sentences": 400, "batch_size": 100, "n_heads": 2, "d_model": 4, "d_ffn": 4, "n_probes": 2}
    settings = [small | {"window": window, "train_on": train} for window in (None, 1) for train in ("all", "short")]
    ledger = trained_ledger(tmp_path, "translation", settings)
    sweeps = ("sweeps/head_roles", "sweeps/attention_structure", "sweeps/translation_lengths")
    queries = [sql for sweep in sweeps for sql in queries_on("translation.md", sweep)]
    assert len(queries) >= len(sweeps)
    for sql in queries:
        assert run_query(ledger, sql).num_rows > 0, sql


def test_the_python_of_docs_grammar_runs() -> None:
    [block] = blocks(DOCUMENTS["grammar.md"], "python")[:1]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "docs/grammar.md", "exec"), {})
    assert " -> " in printed.getvalue()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_commands_and_options_of_a_document_exist(name: str) -> None:
    for line in invocations(DOCUMENTS[name]):
        command, *words = line.split()
        assert command in COMMANDS, f"attnsweep {line}"
        known = {option for parameter in COMMANDS[command].params for option in parameter.opts}
        used = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert used <= known, f"attnsweep {line}"
    every = {option for command in COMMANDS.values() for parameter in command.params for option in parameter.opts}
    spoken = set(re.findall(r"`(--[a-z-]+)", DOCUMENTS[name]))
    assert spoken <= every


def test_every_command_is_in_the_readme() -> None:
    assert {line.split()[0] for line in invocations(README)} == set(COMMANDS)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_links_of_a_document_lead_somewhere(name: str) -> None:
    home = ROOT if name == "README.md" else ROOT / "docs"
    for target in re.findall(r"\]\(([^)#:]+)\)", DOCUMENTS[name]):
        assert (home / target).exists(), target


def as_rows(schema: pa.Schema) -> str:
    """The table of docs/ledger.md for a schema."""
    lines = ["| column | type | meaning | null means |", "|---|---|---|---|"]
    for field in schema:
        doc, _, null = field.metadata[b"doc"].decode().partition("; null = ")
        kind = "string" if pa.types.is_dictionary(field.type) else str(field.type)
        lines.append(f"| `{field.name}` | {kind} | {doc} | {null} |".replace("  |", " |"))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "schema",
    [trainings_schema(CategoryPairs.parameters, CategoryPairs.level_names), curves_schema(), heads_schema(())],
    ids=["trainings", "curves", "heads"],
)
def test_docs_ledger_lists_the_columns_of_the_schema(schema: pa.Schema) -> None:
    assert as_rows(schema) in DOCUMENTS["ledger.md"], f"docs/ledger.md should hold this table:\n{as_rows(schema)}"


def test_docs_ledger_lists_the_columns_of_the_trials_view(ledger: Ledger) -> None:
    section = DOCUMENTS["ledger.md"].partition("## `trials`")[2]
    listed = re.findall(r"^\| `(\w+)`", section, re.MULTILINE)
    columns = [name for name in run_query(ledger, "from trials").column_names if not name.startswith("param_")]
    assert listed == columns


def test_docs_outcomes_names_every_outcome() -> None:
    named = set(re.findall(r"`(\w+)`", DOCUMENTS["outcomes.md"]))
    assert set(OUTCOMES) <= named
