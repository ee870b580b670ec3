"""Users' files as modules: run once, kept apart, with clear errors."""

import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from attnsweep.workloads.errors import UserError
from attnsweep.workloads.user_code import load_module, read_user_code
from tests.refusals import refused

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


READER = "from pathlib import Path\nTABLE = Path(__file__).with_name('table.bin').read_bytes()\n"


def test_the_files_that_code_reads_go_with_it(write: Write) -> None:
    path = write("reader.py", READER)
    path.with_name("table.bin").write_bytes(b"\xff\x00")
    assert load_module(path).TABLE == b"\xff\x00"
    sent = pickle.dumps(replace(read_user_code(path).with_files(("./table.bin",)), is_apart=True))
    shutil.rmtree(path.parent)
    assert pickle.loads(sent).load().TABLE == b"\xff\x00"


def test_a_file_that_is_being_loaded_starts_no_sweep(write: Write) -> None:
    path = write("unguarded.py", "import attnsweep as at\nat.run_sweep(None, 'sweep')")
    for _ in range(2):
        with pytest.raises(UserError) as raised:
            load_module(path)
        assert raised.value.subject == "run_sweep"


def test_files_of_one_name_are_two_modules(write: Write) -> None:
    one, other = (load_module(write(f"{folder}/same.py", f"FOLDER = {folder!r}")) for folder in ("a", "b"))
    assert (one.FOLDER, other.FOLDER) == ("a", "b")
    assert one.__name__ != other.__name__
    assert sys.modules[one.__name__] is one


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
    with refused("raises.py", UserError):
        load_module(path)


MAIN = """
import json, torch
import near
from my_parts import law

def late():
    import lately
    return lately.VALUE
"""


@pytest.fixture
def folder(write: Write) -> Iterator[Path]:
    """A user's file, what it imports from beside it, and what it does not."""
    write("near.py", "import nearer\nVALUE = 1")
    write("nearer.py", "import my_main")
    write("lately.py", "VALUE = 4")
    write("my_parts/law.py", "from .sums import total")
    write("my_parts/sums.py", "total = 3")
    write("my_parts/alone.py", "1 / 0")
    write("json.py", "1 / 0")
    write("torch.py", "1 / 0")
    write("secret.py", "1 / 0")
    write("notes.txt", "")
    yield write("my_main.py", MAIN).parent
    for name in ("near", "nearer", "lately", "my_main", "my_parts", "my_parts.law", "my_parts.sums"):
        sys.modules.pop(name, None)


def test_a_file_is_read_with_what_it_imports_from_beside_it_and_nothing_else(folder: Path) -> None:
    code = read_user_code(folder / "my_main.py")
    assert list(code.texts) == [
        "lately.py",
        "my_main.py",
        "my_parts/law.py",
        "my_parts/sums.py",
        "near.py",
        "nearer.py",
    ]
    assert (code.main, code.folder) == ("my_main.py", str(folder))


def test_modules_of_one_name_beside_two_files_are_kept_apart(write: Write) -> None:
    found = []
    for name in ("a", "b"):
        write(f"{name}/shared_name.py", f"FOLDER = {name!r}")
        found.append(load_module(write(f"{name}/main.py", "import shared_name")))
    assert [each.shared_name.FOLDER for each in found] == ["a", "b"]


def test_an_error_in_a_module_beside_the_file_names_its_line(write: Write) -> None:
    write("faulty.py", "\n1 / 0")
    with refused("main.py", UserError):
        load_module(write("main.py", "import faulty"))
