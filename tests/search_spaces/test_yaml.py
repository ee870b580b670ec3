"""A sweep as YAML: what is read, and what is said of a mistake."""

from pathlib import Path

import pytest

from attnsweep import Categorical, Conditional, Float, Int, Sequential, StuckRate, Sweep
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.errors import SpecError, UserError

WRITTEN = """
name: mine
workload: category_pairs
space:
  variant: {kind: categorical, choices: [positions_only, categories_only]}
  skip: {kind: conditional, on: variant, among: [positions_only], then: true}
  init_sigma: {kind: float, low: 1e-4, high: 3, log: true}
  gradient_clip_norm: null
  n_categories: {kind: int, low: 4, high: 12}
trials: 20
replicates: {width: 0.1, at_most: 64}
objective: {kind: stuck_rate, direction: maximize}
"""
MEANT = Sweep(
    name="mine",
    workload="category_pairs",
    space={
        "variant": Categorical(("positions_only", "categories_only")),
        "skip": Conditional(on="variant", among=("positions_only",), then=True),
        "init_sigma": Float(1e-4, 3.0, log=True),
        "gradient_clip_norm": None,
        "n_categories": Int(4, 12),
    },
    trials=20,
    replicates=Sequential(width=0.1, at_most=64),
    objective=StuckRate(direction="maximize"),
)


def load(folder: Path, text: str, name: str = "sweep.yaml") -> Sweep:
    (folder / name).write_text(text)
    return load_sweep(str(folder / name))


def test_a_file_is_the_sweep_that_its_python_would_be(tmp_path: Path) -> None:
    assert load(tmp_path, WRITTEN, "sweep.yml").to_json() == MEANT.to_json()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2", 'found duplicate key "a"'),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
        pytest.param("[" * 1000, "nested too deeply", id="deep"),
        ("", "expected fields with values: name, workload"),
        ("name: a\nworkload: b\nspace: {}\ntrials: 1\nsampler: boundry", "did you mean boundary?"),
    ],
)
def test_a_mistake_is_named(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        load(tmp_path, text)
    assert said in str(raised.value)


HEAD = "name: a\nworkload: category_pairs\ntrials: 1\nspace:\n"


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        (HEAD + "  n_steps: 3\n  init_sigma: 2026-01-01T10:00:00", "space.init_sigma"),
        (HEAD + "  init_sigma: {kind: categorical, choices: [0.1, !!binary eA==]}", "space.init_sigma.choices.1"),
        (HEAD + "  init_sigma: {kind: float, low: 2, high: 1}\n", "space.init_sigma.low"),
    ],
)
def test_a_mistake_names_its_field(text: str, subject: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as raised:
        load(tmp_path, text)
    assert raised.value.subject.endswith(subject)
