"""The list of code that this user trusts."""

from pathlib import Path

import pytest

from attnsweep.orchestrator.storage import user_state as trust_module
from attnsweep.orchestrator.storage.user_state import is_trusted, trust

MINE, OTHERS = {"a.py": "1"}, {"a.py": "2"}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(trust_module, "_trusted_here", set())


def _other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust_module, "_trusted_here", set())


def test_trust_is_kept_beside_lines_that_are_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    (tmp_path / "attnsweep").mkdir()
    (tmp_path / "attnsweep" / "trusted-code").write_bytes(b"\xff\x80\n")
    trust(MINE, said.append)
    _other_process(monkeypatch)
    assert is_trusted(MINE)
    assert not is_trusted(OTHERS)
    assert said == []


def test_it_is_said_where_trust_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    (tmp_path / "attnsweep" / "trusted-code").mkdir(parents=True)
    trust(MINE, said.append)
    assert is_trusted(MINE)
    _other_process(monkeypatch)
    assert not is_trusted(MINE)
    assert said == [
        f"your trust in this sweep's code cannot be stored ({tmp_path}/attnsweep/trusted-code: Is a directory): "
        "later commands on the sweep need --trust"
    ]
