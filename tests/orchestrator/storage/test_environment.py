"""The environment of a row: the versions that its training runs with."""

import pytest

from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.workloads.engine.process import processor


def _environment(**versions: str) -> Environment:
    return Environment(versions={"numpy": "2.0", **versions})


@pytest.mark.parametrize(
    ("later", "changes"),
    [
        (_environment(), []),
        (_environment(numpy="2.1"), ["numpy 2.0 -> 2.1"]),
        (_environment(torch="3.0"), ["torch not recorded -> 3.0"]),
    ],
)
def test_all_that_differs_is_a_change(later: Environment, changes: list[str]) -> None:
    environment = _environment()
    assert environment.changes(later) == changes
    assert bool(later.changes(environment)) == bool(changes) == (environment.id != later.id)


def test_another_type_of_machine_is_another_environment_and_no_change() -> None:
    here = Environment.current()
    assert here.machine == processor()
    assert here.versions.keys() >= {"python", "torch", "numpy", "attnsweep"}
    other = here.on("aarch64, SVE256")
    assert other.id != here.id
    assert (here.changes(other), other.changes(here)) == ([], [])
    before = Environment(versions={"torch": "2.13.0"})
    assert (before.machine, before.changes(before.on("x86_64, AVX2"))) == (None, [])
