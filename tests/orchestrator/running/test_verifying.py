"""`attnsweep verify`: batches until a claim is decided, in an ordinary sweep directory."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from attnsweep.orchestrator.cli import app
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.report.verdict_page import VERDICT_PAGE
from attnsweep.orchestrator.running import session
from attnsweep.orchestrator.running.session import resume_sweep
from attnsweep.orchestrator.running.verifying import begin, check_claim, decide
from attnsweep.orchestrator.storage.errors import TakenError
from attnsweep.orchestrator.storage.locks import Lock
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces.claim import load_claim
from attnsweep.workloads.errors import UserError
from tests.across.documents import ROOT
from tests.orchestrator.running.test_session import WhileWaiting
from tests.search_spaces.test_claim import claim

HERE = Resources(local=True)

CLAIM = """
claim: Few trainings are <solved> in 8 steps, from wherever they start.
source: a test & nobody
workload: category_pairs
fixed: {variant: positions_only, n_categories: 3, n_positions: 4, n_steps: 8, learning_rate: 0.001}
groups:
  small: {init_sigma: 0.001}
  large: {init_sigma: 0.1}
states:
  - rate(solved, small) < STATED
  - rate(solved, large) < STATED
budget: BUDGET
batch: 4
seed: 7
"""


def claim_file(folder: Path, stated: float, budget: int = 24) -> Path:
    path = folder / "few.yaml"
    path.write_text(CLAIM.replace("STATED", str(stated)).replace("BUDGET", str(budget)))
    return path


def verify(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["verify", *map(str, arguments), "--local"])
    assert done.exception is None or isinstance(done.exception, SystemExit | UserError), done.exception
    return done.exit_code, done.stdout + done.stderr + str(done.exception or "")


@pytest.mark.slow
def test_a_claim_is_decided_in_a_sweep_that_grows(tmp_path: Path, no_mlflow: None) -> None:
    path, where = claim_file(tmp_path, 0.4, budget=8), tmp_path / "s"
    code, said = verify(path, "--dir", where)
    assert (code, "undecided: Few trainings" in said) == (6, True)
    rows = Ledger(where).trainings().num_rows
    # The least budget is the first batch of each group, which is trained already.
    code, said = verify(where, "--budget", "1")
    assert (code, "undecided: Few trainings" in said, SweepDirectory.open(where).stages) == (6, True, (4,))
    # A larger budget is no other claim.
    code, said = verify(where, "--budget", "24")
    found = SweepDirectory.open(where)
    assert (code, rows, found.stages) == (0, 8, (4, 8))
    assert found.claim is not None
    assert found.claim.states == ("rate(solved, small) < 0.4", "rate(solved, large) < 0.4")
    # Decided: nothing more is trained, and the verdict is the same.
    done = CliRunner().invoke(app, ["verify", str(where), "--json"])
    assert (done.exit_code, json.loads(done.stdout)["verdict"]) == (0, "supported")
    assert SweepDirectory.open(where).stages == (4, 8)
    page = (where / VERDICT_PAGE).read_text()
    assert "Few trainings are &lt;solved&gt;" in page
    assert "a test &amp; nobody" in page
    assert "<strong>supported</strong>, 16 trainings" in page
    code, said = verify(claim_file(tmp_path, 0.5), "--dir", where)
    assert (code, "which holds another claim" in said) == (1, True)


def test_a_repeated_command_waits_for_the_one_that_holds_the_claim_and_adds_nothing_twice(
    tmp_path: Path, no_mlflow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a scheduler repeats it while its predecessor still trains."""
    monkeypatch.setattr(session, "_RETRY_SECONDS", 0.01)
    one, where = load_claim(claim_file(tmp_path, 0.4, budget=16)), tmp_path / "s"
    begin(one, where, HERE, Console(quiet=True))
    lock = Lock(Path(where), "verify")

    def others_end() -> None:
        lock.close()
        resume_sweep(where, HERE, Console(quiet=True), replicates=8)

    screen = Console(file=WhileWaiting(others_end))
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(decide, where, HERE, screen, claim=one).result()
    assert (found.verdict.decision, found.directory.stages) == ("supported", (4, 8))
    assert Ledger(where).trainings().num_rows == 16
    # Without the file it is a person's command, which is told at once.
    with closing(Lock(Path(where), "verify")), pytest.raises(TakenError):
        resume_sweep(where, HERE, Console(quiet=True), replicates=16)


def test_what_the_workload_cannot_tell_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for state, said in (
        ("rate(sovled, small) > 0.5", "did you mean solved?"),
        ("rate(event fits, small) > 0.5", "declares no events"),
        ("rate(solved by 900, small) > 0.5", "a step up to n_steps=8"),
        ("median(solved, small) > 9", "a step up to n_steps=8"),
        ("rate(role positional, small) > 0.5", "solution_3; name one of them"),
        ("rate(role solution_2 in first, small) > 0.5", "give its number, from 0"),
        ("median(value eval_los, small) < 9", "did you mean eval_loss?"),
    ):
        with pytest.raises(UserError) as refused:
            check_claim(claim(fixed={"n_steps": 8}, groups={"small": {"init_sigma": 0.1}}, states=(state,)))
        assert said in str(refused.value)


@pytest.mark.slow
def test_the_claims_that_ship_are_about_their_workloads() -> None:
    files = sorted((ROOT / "docs" / "claims" / "stated").glob("*.yaml"))
    assert len(files) > 5
    for path in files:
        check_claim(load_claim(path))
