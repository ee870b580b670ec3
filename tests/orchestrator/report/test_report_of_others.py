"""`attnsweep report` on directories of other users, which cannot be read or written."""

import os
import sys
from pathlib import Path

import pytest

from attnsweep.orchestrator import cli
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from tests.orchestrator.small_sweep import small_sweep


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    SweepDirectory.create(tmp_path / "s", small_sweep("s"), {})
    return tmp_path / "s"


def _said(sweep: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    monkeypatch.setattr(sys, "argv", ["attnsweep", "report", str(sweep)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code, capsys.readouterr().err


def test_one_that_cannot_be_entered_is_named(
    sweep: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_symlink", refused)
    assert _said(sweep, monkeypatch, capsys) == (
        1,
        f"attnsweep: {sweep}: got 'Permission denied', expected a file that can be read;"
        " ask its owner for read access\n",
    )


def test_one_that_cannot_be_written_is_reported_elsewhere(
    sweep: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    assert _said(sweep, monkeypatch, capsys) == (
        2,
        f"attnsweep: --out: got None, expected a file name for the report, because the folder"
        f" {sweep} is not writable; add --out FILE.html\n",
    )
