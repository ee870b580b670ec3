"""`attnsweep verify`: batches until a claim is decided, in an ordinary sweep directory."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from attnsweep.orchestrator.cli import app
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.writer import LedgerWriter
from attnsweep.orchestrator.report.verdict_page import BADGE, VERDICT_PAGE, write_verdict
from attnsweep.orchestrator.running.verifying import check_claim, read_verdict
from attnsweep.orchestrator.storage.annotation import Annotation
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.claim import load_claim
from attnsweep.workloads.errors import UserError
from tests.across.documents import DOCUMENTS, ROOT, blocks
from tests.orchestrator.small_sweep import SCHEMAS
from tests.search_spaces.test_claim import claim

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
    page, badge = ((where / name).read_text() for name in (VERDICT_PAGE, BADGE))
    assert "Few trainings are &lt;solved&gt;" in page
    assert "a test &amp; nobody" in page
    assert "supported, 16 trainings" in badge
    code, said = verify(claim_file(tmp_path, 0.5), "--dir", where)
    assert (code, "which contains another claim" in said) == (1, True)


def test_a_claim_without_rows_is_undecided(tmp_path: Path) -> None:
    one = claim(fixed={"n_steps": 8}, states=("rate(solved, small) < 0.9", "rate(solved, large) < 0.9"), budget=32)
    directory = SweepDirectory.create(tmp_path / "s", one.sweep(), {}, annotation=Annotation(claim=one))
    LedgerWriter(directory.place, SCHEMAS, directory.spec_sha256).close()
    found = read_verdict(directory, one)
    assert (found.decision, found.looks, found.lines()[0]) == ("undecided", (), f"undecided: {one.claim}")
    write_verdict(directory, found)
    assert "undecided, 0 trainings" in (tmp_path / "s" / BADGE).read_text()


def test_what_the_workload_cannot_tell_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for state, said in (
        ("rate(sovled, small) > 0.5", "did you mean solved?"),
        ("rate(event fits, small) > 0.5", "declares no events"),
        ("rate(solved by 900, small) > 0.5", "a statement about steps up to n_steps=8"),
        ("median(solved, small) > 9", "a statement about steps up to n_steps=8"),
    ):
        with pytest.raises(UserError) as refused:
            check_claim(claim(fixed={"n_steps": 8}, groups={"small": {"init_sigma": 0.1}}, states=(state,)))
        assert said in str(refused.value)


def test_a_forecast_trains_nothing(tmp_path: Path) -> None:
    path = claim_file(tmp_path, 0.4)
    done = CliRunner().invoke(app, ["verify", str(path), "--forecast"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "margin 0.2: " in done.stdout
    assert not (tmp_path / "sweeps").exists()


def test_the_claims_that_ship_are_about_their_workloads(tmp_path: Path) -> None:
    documented = tmp_path / "first.yaml"
    (text,) = blocks(DOCUMENTS["verify.md"], "yaml")
    documented.write_text(text)
    files = [documented, *sorted((ROOT / "docs" / "claims" / "stated").glob("*.yaml"))]
    assert len(files) > 5
    for path in files:
        check_claim(load_claim(path))
