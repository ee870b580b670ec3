"""Untrusted names, values and errors: they cannot leave a directory, break a page or control a terminal.

What a report makes of them: tests/orchestrator/report/test_report_hostile.py.
"""

import hashlib
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from attnsweep import compare, open_sweep
from attnsweep.orchestrator.cli.screen.status import print_status
from attnsweep.orchestrator.ledger.query import query_all, render
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.summary import summarize
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.terminal import PlainConsole
from attnsweep.search_spaces import Categorical, Sweep
from attnsweep.workloads.errors import SpecError
from tests.orchestrator.commands import command as run
from tests.orchestrator.head_rows import head_rows, sweep_with_heads
from tests.orchestrator.small_sweep import edit_record, small_sweep, sweep_on_disk, trial_rows
from tests.refusals import refused

STEERING = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\x08‮"
MARKUP = "[/][red]x[/red][link=http://127.0.0.1]y"
NASTY = f"{STEERING}{MARKUP}'\"`; $(touch owned)\n../../x\\"
LONG = "z" * 10_000
NAMES = ["../x", "..", "/etc/x", "a b", "-x", ".x", "a'b", "a\n", "a\x00", "é", "", "a" * 81]
LOOKING = (["status", "s"], ["query", "s", "from trials"], ["report", "s"], ["compact", "s"])
"""Commands that are safe on a stranger's sweep directory."""
LOADING = (["resume", "s"], ["why", "s", "0/0"], ["audit", "s"], ["run", "--local", "s/sweep.json"])
"""Commands that run the code of a sweep directory."""


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


def _assert_harmless(text: str) -> None:
    assert set(re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f‮]", text)) == set()
    assert "\\x1b]0;owned" in text


@pytest.mark.slow
def test_the_terminal_is_not_steered(hostile: SweepDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    text = io.StringIO()
    console = PlainConsole(file=text, width=500)
    summary = summarize(hostile, refused={1: NASTY}, finished=False, seconds=1.0, n_before=0, replays=None)
    replace(summary, mlflow=NASTY).print(console)
    _assert_harmless(text.getvalue())
    assert MARKUP in text.getvalue()
    compare(hostile.place, hostile.place, by="variant").print(console)
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
@pytest.mark.parametrize("words", LOOKING, ids=lambda words: words[0])
def test_looking_at_a_directory_runs_none_of_its_code(words: list[str], ran: Path) -> None:
    assert run(*words).code == 0
    assert not ran.exists()
    assert open_sweep("s").emergence("positional", by="layer").num_rows > 0
    assert not ran.exists()


@pytest.mark.slow
@pytest.mark.parametrize("words", LOADING, ids=lambda words: words[0])
def test_the_others_run_it_and_say_so(words: list[str], ran: Path) -> None:
    ended = run(*words)
    assert ended.code in (1, 2)
    assert ran.exists()
    assert re.search(r"^runs the code stored in \S*s(/code)?: evil\.py$", ended.err, re.MULTILINE)
