"""Users' files as modules: run once, kept apart, with clear errors."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from attnsweep.workloads.errors import UserError
from attnsweep.workloads.user_code import load_module, user_modules

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, content: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        return path

    return written


def test_a_file_runs_once_whatever_its_path_is_written_like(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("once.py", "from pathlib import Path\nwith Path(__file__ + '.runs').open('a') as f: f.write('x')\n")
    monkeypatch.chdir(path.parent)
    first = load_module(path)
    assert load_module(Path("once.py")) is first
    assert load_module(path.parent / "." / "once.py") is first
    assert path.with_name("once.py.runs").read_text() == "x"


def test_files_of_one_name_are_two_modules(write: Write) -> None:
    one, other = (load_module(write(f"{folder}/same.py", f"FOLDER = {folder!r}")) for folder in ("a", "b"))
    assert (one.FOLDER, other.FOLDER) == ("a", "b")
    assert one.__name__ != other.__name__
    assert sys.modules[one.__name__] is one
    assert {one, other} <= set(user_modules())


@pytest.mark.parametrize(
    ("content", "given"),
    [
        ("raise SystemExit(2)", "SystemExit: 2"),
        ("import sys; sys.exit('enough')", "SystemExit: enough"),
        ("1 / 0", "Z"),
    ],
)
def test_a_file_that_raises_is_the_users_to_mend(write: Write, content: str, given: str) -> None:
    path = write("raises.py", content)
    with pytest.raises(UserError, match=rf"raises.py: got '{given}.*', expected a file that runs; try: python "):
        load_module(path)


def test_a_file_that_failed_runs_again_once_mended(write: Write) -> None:
    path = write("mended.py", "def broken(:")
    with pytest.raises(UserError, match="expected Python"):
        load_module(path)
    assert not [module for module in user_modules() if "mended" in module.__name__]
    write("mended.py", "VALUE = 1")
    assert load_module(path).VALUE == 1


def test_a_stop_by_the_keyboard_is_no_error_of_the_file(write: Write) -> None:
    with pytest.raises(KeyboardInterrupt):
        load_module(write("stopped.py", "raise KeyboardInterrupt"))
    assert not [module for module in user_modules() if "stopped" in module.__name__]
