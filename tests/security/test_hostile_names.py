"""Untrusted names, values and errors: they cannot leave a directory, break a page or control a terminal.

What a report makes of them: tests/orchestrator/report/test_report_hostile.py.
"""

import hashlib
import io
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient

from attnsweep import compare, open_sweep
from attnsweep.orchestrator.cli.screen.results import print_comparison
from attnsweep.orchestrator.cli.screen.status import print_status
from attnsweep.orchestrator.ledger.query import query_all, render
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.progress import ProgressDisplay
from attnsweep.orchestrator.running.summary import summarize
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.terminal import PlainConsole, plain
from attnsweep.orchestrator.tracking.sync import SyncResult, sync
from attnsweep.search_spaces import Categorical, Sweep
from attnsweep.workloads.errors import SpecError
from tests.orchestrator.commands import command as run
from tests.orchestrator.head_rows import head_rows, sweep_with_heads
from tests.orchestrator.small_sweep import edit_record, small_sweep, sweep_on_disk, trial_rows
from tests.present import present
from tests.refusals import refused
from tests.search_spaces.test_claim import claim

STEERING = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\x08‮"
MARKUP = "[/][red]x[/red][link=http://127.0.0.1]y"
NASTY = f"{STEERING}{MARKUP}'\"`; $(touch owned)\n../../x\\"
LONG = "z" * 10_000
NAMES = ["../x", "..", "/etc/x", "a/b", "a b", "-x", ".x", "a'b", 'a"b', "a\nb", "a\n", "a\x00", "é", "", "a" * 81]
LOOKING = {"status": [], "list": [], "query": ["from trials"], "report": [], "compare": ["s"], "compact": []}
"""Commands that are safe on a stranger's sweep directory, with their further arguments."""
LOADING: dict[str, list[str]] = {
    "resume": [],
    "replay": ["0/0"],
    "fork": ["0/0", "--at", "1"],
    "why": ["0/0"],
    "heads": ["0/0"],
    "export": ["0/0", "--to", "safetensors", "--out", "out"],
    "audit": [],
    "verify": ["--local"],
    "run": ["--local"],
}
"""Commands that run the code of a sweep directory."""
OF_RECORD = ("run",)
"""Those that are given its `sweep.json`."""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    """A stranger's sweep directory in which every free text is hostile."""
    home = tmp_path_factory.mktemp("hostile") / "-x 'y'\n\x1b[31m"
    choices = ("positions_only", NASTY, LONG)
    spec = small_sweep("hostile", description=NASTY, trials=3, replicates=2)
    spec = spec.but(space={**spec.space, "variant": Categorical(choices=choices)})
    named = {"outcome_detail": NASTY, "host": NASTY, "error": NASTY + LONG}
    trials = [
        trial_rows(at, ["solved", NASTY], variant=value, param_variant=value, training_id=f"{NASTY}{at}", **named)
        for at, value in enumerate(choices)
    ]
    sweep_on_disk(home, spec, *trials)
    name, of = f"x' and tags.`attnsweep.kind` = 'x{NASTY}", {"host": NASTY, "user": NASTY}
    edit_record(home, lambda record: record.update(sweep=name, provenance=record["provenance"] | of))
    return SweepDirectory.open(home)


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_a_sweeps_name_is_a_name_of_a_folder(name: str) -> None:
    with refused("name", SpecError):
        Sweep(name=name, workload="category_pairs", space={}, trials=1)


@pytest.mark.parametrize("text", [NASTY, LONG, "\ud800", "\u2028", "\x7f", "\x00"])
def test_plain_text_does_not_steer(text: str) -> None:
    shown = plain(text)
    assert all(sign in "\t\n" or sign.isprintable() for sign in shown)
    assert shown.encode()
    assert plain(shown) == shown


def _assert_harmless(text: str) -> None:
    assert set(re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f‮]", text)) == set()
    assert "\\x1b]0;owned" in text


@pytest.mark.slow
def test_the_terminal_is_not_steered(hostile: SweepDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    text = io.StringIO()
    console = PlainConsole(file=text, width=500)
    spec = hostile.spec
    summary = summarize(hostile, refused={1: NASTY}, finished=False, seconds=1.0, n_before=0, replays=None)
    replace(summary, mlflow=NASTY).print(console)
    _assert_harmless(text.getvalue())
    assert MARKUP in text.getvalue()
    with ProgressDisplay(console, spec, Ledger(hostile.place).trainings()) as display:
        display.committed([], Ledger(hostile.place).trainings())
    print_comparison(compare(hostile.place, hostile.place, by="variant"), console)
    _assert_harmless(text.getvalue())

    print_status(hostile.place)
    _assert_harmless(capsys.readouterr().out)
    sql = 'select outcome, error, param_variant as "\x1b[31m" from trainings where trial = 1'
    render(query_all([Ledger(hostile.place)], sql), "table", None)
    shown = capsys.readouterr().out
    _assert_harmless(shown)
    assert LONG in shown


def test_a_mistake_and_a_fault_do_not_steer(hostile: SweepDirectory) -> None:
    for words in (["status", f"nowhere{NASTY}"], ["query", "--", str(hostile.place), f"select {NASTY}"], [NASTY]):
        ended = run(*words)
        assert ended.code == 2
        _assert_harmless(ended.err)


@pytest.mark.parametrize("path", ["-x", "--out", "a b", "a'b", "a\nb", "$(x)", "sweeps/x"])
def test_a_command_to_type_names_the_directory(path: str) -> None:
    (word,) = shlex.split(as_argument(Path(path)))
    assert not word.startswith("-")
    assert Path(word) == Path(path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Glyph:UserWarning", "ignore:constrained_layout:UserWarning")  # of its figure
def test_mlflow_takes_it_and_finds_it_again(hostile: SweepDirectory, mlflow_uri: str) -> None:
    assert sync(hostile, mlflow_uri).n_logged == 3
    assert sync(hostile, mlflow_uri) == SyncResult(n_logged=0, n_present=3)
    client = MlflowClient(mlflow_uri)
    runs = client.search_runs([present(client.get_experiment_by_name("category_pairs")).experiment_id])
    assert len(runs) == 4
    assert {run.data.tags["attnsweep.sweep"] for run in runs} == {hostile.sweep}


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that appears when the code of the sweep in `s` runs."""
    monkeypatch.chdir(tmp_path)
    ran = tmp_path / "ran"
    spec = small_sweep("s", workload="evil.py:Workload", trials=1)
    rows = trial_rows(0, ["solved"] * 3 + ["degenerate_zero"])
    # Without heads nobody would ask for the names of their layers.
    heads = [head for row in rows for head in head_rows(row, {(0, 0): "..pp"})]
    found = sweep_with_heads(tmp_path / "s", spec, [rows], heads)
    evil = f"import pathlib; pathlib.Path({str(ran)!r}).touch()"
    digest = hashlib.sha256(evil.encode()).hexdigest()
    found.record_as(found.but(code={"evil.py": digest}))
    (tmp_path / "s" / "code").mkdir()
    (tmp_path / "s" / "code" / f"{digest}.py").write_text(evil)
    return ran


@pytest.mark.slow
@pytest.mark.sample("report", "query", "status")
@pytest.mark.parametrize("command", LOOKING)
def test_looking_at_a_directory_runs_none_of_its_code(command: str, ran: Path) -> None:
    assert run(command, "s", *LOOKING[command]).code == 0
    assert not ran.exists()
    assert open_sweep("s").emergence("positional", by="layer").curves
    assert not ran.exists()


@pytest.mark.slow
@pytest.mark.parametrize("command", LOADING)
def test_the_others_run_it_and_say_so(command: str, ran: Path) -> None:
    if command == "export":
        pytest.importorskip("safetensors", reason="no safetensors: pip install 'attnsweep[safetensors]'")
    if command == "verify":
        found = SweepDirectory.open("s")
        one = claim(groups={"all": {}}, states=("rate(solved, all) > 0.5",), batch=4, budget=8)
        found.record_as(found.but(claim=one))
    words = (*command.replace("N", "1").split(), "s/sweep.json" if command in OF_RECORD else "s", *LOADING[command])
    ended = run(*words)
    assert ended.code in (1, 2)
    assert ran.exists()
    assert re.search(r"^runs the code stored in \S*s(/code)?: evil\.py$", ended.err, re.MULTILINE)
