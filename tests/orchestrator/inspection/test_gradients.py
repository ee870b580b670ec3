"""The commands that check gradients: rows, messages, exit codes; of a workload, and of a sweep's ended trainings."""

from pathlib import Path

import pytest

from attnsweep.search_spaces.loading import load_sweep
from tests.orchestrator.commands import command
from tests.orchestrator.trained_sweep import trained_sweep

USER_FILE = """
import torch
from dataclasses import dataclass
from attnsweep import Categorical, Sweep, parameter
from attnsweep.workloads.category_pairs import CategoryPairs, CategoryPairsParameters

class Doubled(torch.autograd.Function):
    generate_vmap_rule = True
    @staticmethod
    def forward(value):
        return value.clone()
    @staticmethod
    def setup_context(ctx, inputs, output):
        pass
    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient

@dataclass(frozen=True, kw_only=True)
class Parameters(CategoryPairsParameters):
    is_doubled: bool = parameter(False, "whether a backward pass is wrong", static=True)

class Mine(CategoryPairs):
    name = "mine"
    parameters = Parameters
    def build(self, parameters):
        module = super().build(parameters)
        module.is_doubled = parameters.is_doubled
        return module
    def loss(self, module, batch):
        loss = super().loss(module, batch)
        return Doubled.apply(loss) if module.is_doubled else loss

def sweep(is_doubled=False):
    space = {"n_steps": 30, "n_categories": 3, "n_positions": 4, "init_sigma": Categorical((1e-6, 0.3)),
             "optimizer": "lbfgs", "learning_rate": 1.0, "is_doubled": is_doubled}
    return Sweep(name="mine", workload="mine.py:Mine", space=space, trials=2, replicates=3, sampler="grid")
"""

WRONG_IDENTITY = """def identities(self, parameters):
        from attnsweep import identities
        return (identities.RowSums(name="q", part=identities.Part("q_NM")),)
"""


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(USER_FILE)
    return tmp_path / "mine.py"


@pytest.mark.slow
def test_a_workload_without_a_fault_is_clean(user_file: Path) -> None:
    ended = command("check-gradients", f"{user_file}:Mine", "--set", "optimizer=lbfgs", "--json")
    checks = ended.json["checks"]
    assert (ended.code, ended.json["clean"]) == (0, True)
    assert {each["where"] for each in checks} == {"random weights", "the weights after 100 evaluations"}
    kinds = {"fused", "blocks", "differences", "group", "closed form", "sgd step"}
    assert {each["check"] for each in checks} == kinds
    assert " holds    differences     q_MK " in ended.err
    assert set(ended.json["seconds"]) == {"training", "checking"}


@pytest.mark.slow
def test_a_fault_is_named_and_ends_with_exit_code_1(user_file: Path) -> None:
    doubled = ("--set", "optimizer=lbfgs", "--set", "is_doubled=true")
    ended = command("check-gradients", f"{user_file}:Mine", *doubled, "--json")
    assert (ended.code, ended.json["clean"]) == (1, False)
    failed = {(each["check"], each["parameter"]) for each in ended.json["checks"] if each["verdict"] == "fails"}
    assert failed == {(check, name) for check in ("differences", "closed form") for name in ("q_MK", "v_NN")}
    assert (
        "- differences of q_MK, random weights: autograd's gradient is not the slope of the loss: a backward pass "
        "written by hand, or a detach" in ended.err
    )


def test_a_mistake_and_an_identity_that_does_not_fit_the_module_are_one_line(user_file: Path) -> None:
    ended = command("check-gradients", f"{user_file}:Mine", "--set", "n_step=3")
    assert ended.code == 2
    assert ended.err.startswith("attnsweep: n_step: got 3, expected a parameter of the workload")
    user_file.write_text(USER_FILE.replace("    def loss", f"    {WRONG_IDENTITY}\n    def loss"))
    ended = command("check-gradients", f"{user_file}:Mine", "--set", "optimizer=lbfgs")
    given = "identities: got 'Part(\"q_NM\")', expected the name of a parameter of the module: q_MK, v_NN"
    assert (ended.code, f"{given}; did you mean q_MK" in ended.err) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("is_doubled", [pytest.param(False, marks=pytest.mark.scale), True])
def test_an_audit_trains_one_training_of_each_outcome_again(
    user_file: Path, is_doubled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{user_file.parent}/missing.db")
    spec = load_sweep(str(user_file)).fix({"is_doubled": is_doubled})
    directory = trained_sweep(user_file.parent / "sweep", spec)
    ended = command("audit", directory.place, "--gradients", "--json")
    found = ended.json
    assert ended.code == 1  # MLflow is down.
    (check,) = [each for each in found["checks"] if each["line"].startswith("gradients: ")]
    assert [problem["fix"].startswith("autograd's gradient") for problem in check["problems"]].count(True) == (
        4 if is_doubled else 0
    )
    ends = next(each["where"] for each in found["gradients"]["checks"] if each["where"].startswith("the ends of "))
    outcomes = [word.strip("(),") for word in ends.split() if word.startswith("(")]
    assert len(outcomes) == len(set(outcomes)) >= 2
    assert "training again, unless their weights were kept: " in ended.err
    assert found["gradients"]["seconds"]["training again"] > 0
