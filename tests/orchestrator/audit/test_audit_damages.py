"""Each kind of damage to the ledger, the study and the record is found, and named."""

import re

import pytest

from attnsweep.orchestrator.audit.audit import audit
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SweepDirectory
from tests.orchestrator.audit.damages import DAMAGES, lines_of, problems_of, undrawn
from tests.orchestrator.small_sweep import folder_of
from tests.orchestrator.trained_sweep import edit


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found(damage: str, sweep: SweepDirectory) -> None:
    inflict, expected = DAMAGES[damage]
    inflict(sweep)
    found = problems_of(audit(sweep.place))
    assert len(found) == len(expected), found
    for problem, beginning in zip(found, expected, strict=True):
        assert problem.startswith(beginning)


@pytest.mark.slow
def test_files_that_cannot_be_read(sweep: SweepDirectory) -> None:
    (path,) = (folder_of(sweep) / "curves").glob("*.parquet")
    path.write_bytes(path.read_bytes()[:-20])
    found = audit(sweep.place)
    assert found.counts == {"asked": None, "trained": None, "told": None, "logged": 9}
    assert lines_of(found)[0] == "asked ?, trained ?, told ?, logged 9 trials"
    unread, damaged = problems_of(found)
    assert unread.startswith(f"not checked: trials and trainings: {path}: ")
    assert damaged.startswith(f"{path}: ")
    assert damaged.endswith("a file that does not match its checksum; continue with: attnsweep resume DIR")
    assert lines_of(found)[-2] == "files 3"


@pytest.mark.slow
def test_a_page_that_is_damaged_behind_a_whole_footer(sweep: SweepDirectory) -> None:
    (path,) = (folder_of(sweep) / "trainings").glob("*.parquet")
    content = bytearray(path.read_bytes())
    content[40:4000] = b"x" * 3960
    path.write_bytes(content)
    unread, damaged = problems_of(audit(sweep.place))
    assert unread.startswith(f"not checked: trials and trainings: {path}: a file that does not match its checksum")
    assert damaged.startswith(f"{path}: a file that does not match its checksum; continue with: attnsweep resume DIR")


def test_a_file_of_another_sweep(sweep: SweepDirectory) -> None:
    edit(sweep.but(spec_sha256="5ec" * 21 + "a"), "heads", lambda rows: rows)
    problems = problems_of(audit(sweep.place))
    assert len(problems) == 3
    assert all("rows of another sweep, of the spec 5ec5ec5ec5ec" in problem for problem in problems)


def test_a_study_that_is_gone_or_damaged(sweep: SweepDirectory) -> None:
    journal = folder_of(sweep) / STUDY_FILE
    text = journal.read_text()
    journal.write_text("{" + text)
    unread, changed = problems_of(audit(sweep.place))
    assert unread.startswith(f"not checked: trials and trainings: {journal}: ")
    assert changed == "study.journal: lines changed since they were written: 1; restore it from a copy"
    journal.unlink()
    [problem] = problems_of(audit(sweep.place))
    assert problem.startswith(f"not checked: trials and trainings: {journal}: ")
    assert "the file study.journal, which holds the sweep's Optuna study, does not exist" in problem
    assert not journal.exists()


def test_a_spec_that_was_edited(sweep: SweepDirectory) -> None:
    record = folder_of(sweep) / "sweep.json"
    record.write_text(record.read_text().replace('"trials": 10', '"trials": 11'))
    found = audit(sweep.place)
    assert problems_of(found) == [
        f"{record}: the contents do not match the stored sha256; "
        "restore the file from a copy: to change a sweep, run a new one instead of editing its record"
    ]
    assert lines_of(found) == ["sweep.json cannot be read: nothing else was checked"]


@pytest.mark.parametrize("parameter", ["init_sigma", "optimizer"])
def test_a_parameter_that_the_study_lacks(parameter: str, sweep: SweepDirectory) -> None:
    """`optimizer` is one that others depend on."""
    undrawn(2, parameter)(sweep)
    found = problems_of(audit(sweep.place))
    assert [each for each in found if re.search(r": 2[ /]", each)] == found != []
