"""The environment of a row: exactly the versions and the code that its training runs."""

import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from attnsweep.orchestrator.storage.environment import Environment, versions
from attnsweep.orchestrator.training.messages import PackOrder, Progress, RunContext, Trained
from attnsweep.orchestrator.training.tasks import Task
from attnsweep.orchestrator.training.trainer import Trainer
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.compiling.libraries import merged_engine
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.process import processor
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.translation import Translation

OWN = '''
import json
from typing import TYPE_CHECKING
import my_layers
from my_package import law
from attnsweep.workloads.category_pairs import CategoryPairs

if TYPE_CHECKING:
    import my_types

class Own(CategoryPairs):
    """Mine."""

    name = "own"

    def build(self, parameters):
        import my_late
        return super().build(parameters)
'''
FILES = {
    "own.py": OWN,
    "my_layers.py": "WIDTH = 3",
    "my_package/__init__.py": "",
    "my_package/law.py": "from . import sums\nfrom .sums import total",
    "my_package/sums.py": "total = 4",
    "my_package/alone.py": "unused = 1",
    "my_late.py": "late = True",
    "my_types.py": "",
    "my_notes.py": "",
}
IMPORTED = {
    "own.py": "own.py",
    "my_layers": "my_layers.py",
    "my_package": "my_package/__init__.py",
    "my_package.law": "my_package/law.py",
    "my_package.sums": "my_package/sums.py",
    "my_late": "my_late.py",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's file and the modules beside it."""
    place = tmp_path / "mine"
    for name, text in FILES.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    monkeypatch.syspath_prepend(place)
    yield place
    for name in [each for each in sys.modules if each.startswith("my_")]:
        del sys.modules[name]


def _own(folder: Path) -> Workload[Any]:
    return load_workload(f"{folder / 'own.py'}:Own")


@pytest.mark.parametrize("workload", [CategoryPairs(), FormalLanguages(), Translation()], ids=lambda each: each.name)
def test_of_ours_it_names_what_trains_and_what_makes_rows(workload: Workload[Any]) -> None:
    found = Environment.current(workload).code.keys()
    rooms = {name.split(".")[1] for name in found if name.startswith("workloads.")}
    # A translator may read a corpus that the user names.
    reading = {"files", "prepared_files"} if workload.name == "translation" else set()
    own = {workload.name, "attention", "diagnostics", "engine"}
    said = {"conditions", "declaration", "errors", "interventions", "parameters", "update_rules", "vocabulary"}
    assert rooms == own | reading | said
    assert found >= {
        "orchestrator.training.trainer",
        "orchestrator.training.rows",
        "orchestrator.training.tasks",
        "orchestrator.ledger.schema",
        "workloads",
        "workloads.engine.pack",
        "workloads.diagnostics.outcomes",
        f"workloads.{workload.name}.workload",
    }
    # The code that schedules trainings or analyses them is not part of the training.
    assert not found & {
        "orchestrator.running.loop",
        "orchestrator.training.ray_pool",
        "workloads.testing",
        "workloads.registry",
    }
    # Each name must be a module: any other name would never change.
    assert all(importlib.util.find_spec(f"attnsweep.{name}") for name in found - {"attnsweep"})


def test_all_that_a_training_executes_is_named() -> None:
    parameters = CategoryPairs.parameters.resolve(
        {"n_steps": 2, "n_categories": 3, "n_positions": 4, "init_sigma": 1e-4}
    )
    task = Task(0, 0, Training(parameters, 0))
    trainer = Trainer(CategoryPairs(), RunContext("sweep"), "cpu")
    executed: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            executed.add(frame.f_globals.get("__name__", ""))

    sys.setprofile(note)
    try:
        report = trainer.start(PackOrder("pack", [task]))
        while isinstance(report, Progress):
            report = trainer.proceed()
    finally:
        sys.setprofile(None)
    assert isinstance(report, Trained)
    ours = {name.removeprefix("attnsweep.") for name in executed if name.startswith("attnsweep.")}
    assert {"orchestrator.training.trainer", "workloads.engine.pack", "workloads.category_pairs.workload"} <= ours
    # If an earlier test has loaded a user's module, Python asks the finder of `user_code` at each import.
    assert ours - {"workloads.user_code"} - Environment.current(CategoryPairs()).code.keys() == set()


def test_of_the_users_it_names_the_file_and_what_it_imports_from_beside_it(folder: Path) -> None:
    shipped = Environment.current(CategoryPairs()).code.keys()
    assert Environment.current(_own(folder)).code.keys() - shipped == IMPORTED.keys()


@pytest.mark.slow
@pytest.mark.parametrize("module", IMPORTED)
def test_other_code_is_a_change_comments_and_docstrings_are_none(module: str, folder: Path) -> None:
    file = folder / IMPORTED[module]
    before, text = Environment.current(_own(folder)), file.read_text()
    file.write_text(f'"""About it."""\n# Thought better of it.\n{text.replace("Mine", "Ours")}\n\n')
    assert before.changes(Environment.current(_own(folder))) == []
    assert before.id == Environment.current(_own(folder)).id
    file.write_text(f"{text}\nmore = 1")
    assert before.changes(Environment.current(_own(folder))) == [f"code of {module}"]


def test_what_is_not_imported_is_no_change(folder: Path) -> None:
    before = Environment.current(_own(folder))
    for name in ("my_types.py", "my_notes.py", "my_package/alone.py"):
        (folder / name).write_text("more = 1")
    assert before.changes(Environment.current(_own(folder))) == []


def test_the_users_folder_may_be_moved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Environment.current(_own(folder))
    elsewhere = folder.rename(folder.with_name("elsewhere"))
    monkeypatch.syspath_prepend(elsewhere)
    importlib.invalidate_caches()
    for name in [each for each in sys.modules if each.startswith("my_")]:
        del sys.modules[name]
    assert before.id == Environment.current(_own(elsewhere)).id


def test_a_workload_of_an_installed_package_is_followed_through_its_package(folder: Path) -> None:
    package = (folder / "my_package").rename(folder / "my_installed")
    (package / "alone.py").write_text(OWN.replace("from my_package import law", "from . import law"))
    workload = load_workload("my_installed.alone:Own")
    shipped = Environment.current(CategoryPairs()).code.keys()
    found = Environment.current(workload).code.keys() - shipped
    assert found == {"my_installed", "my_installed.alone", "my_installed.law", "my_installed.sums"}


def _environment(code: dict[str, str], **versions: str) -> Environment:
    return Environment(versions={"numpy": "2.0", **versions}, code=code)


@pytest.mark.parametrize(
    ("later", "changes"),
    [
        (_environment({"a": "1", "b": "2"}), []),
        (_environment({"a": "1", "b": "2"}, numpy="2.1"), ["numpy 2.0 -> 2.1"]),
        (_environment({"a": "1", "b": "2"}, torch="3.0"), ["torch not recorded -> 3.0"]),
        (_environment({"a": "0", "b": "2"}), ["code of a"]),
        (_environment({"a": "1"}), ["code of b"]),
        (_environment({"a": "1", "b": "2", "c": "3"}), ["code of c"]),
        (_environment({"a": "1"} | {str(n): "0" for n in range(7)}), ["code of b, 0, 1, 2, 3, 3 more"]),
        (
            _environment({"workloads": "1", "orchestrator/tasks.py": "2"}),
            ["code, which was recorded in another form and cannot be compared"],
        ),
        (_environment({}), ["code, which was recorded in another form and cannot be compared"]),
    ],
)
def test_all_that_differs_is_a_change(later: Environment, changes: list[str]) -> None:
    environment = _environment({"a": "1", "b": "2"})
    assert environment.changes(later) == changes
    assert bool(later.changes(environment)) == bool(changes) == (environment.id != later.id)


def test_another_type_of_machine_is_another_environment_and_no_change() -> None:
    here = Environment.current(CategoryPairs())
    assert here.machine == processor()
    assert here.versions.keys() >= {"python", "torch", "numpy", "attnsweep"}
    assert here.type_in_words == f"{processor()}, PyTorch {here.versions['torch'].partition('+')[0]}"
    other = here.on("aarch64, SVE256")
    assert other.id != here.id
    assert (here.changes(other), other.changes(here)) == ([], [])
    # As an earlier version has recorded it.
    before = Environment(versions={"torch": "2.13.0"}, code={})
    assert (before.machine, before.changes(before.on("x86_64, AVX2"))) == (None, [])


@pytest.mark.parametrize(
    ("found", "engine"),
    [({}, "vmapped"), ({"engine": "blocks, avx2, g++ 12"}, "blocks"), ({"engine": "merged, triton 3.6.0"}, "merged")],
)
def test_it_names_its_engine(found: dict[str, str], engine: str) -> None:
    assert Environment(versions=found, code={}).engine == engine


def test_merged_steps_need_the_compiler_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"triton": "3.6.0"}[name])
    assert merged_engine() == "merged, triton 3.6.0"
    monkeypatch.undo()
    if importlib.util.find_spec("triton") is None:
        with pytest.raises(UserError, match="install triton"):
            versions("merged")
