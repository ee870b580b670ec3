"""What a step of each shipped workload asks of a GPU: so many kernels, and never a wait. With L-BFGS, the host reads a
few counts in each evaluation. Collected by `test_devices`, in a process of its own.

    python -m tests.workloads.step_cases        prints the table of docs/engines.md
"""

import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Batch, Lanes, Training, Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.gpt import GPTWorkload
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.testing import defaults
from attnsweep.workloads.translation import Translation
from tests.workloads.device_cases import FULL, INDUCTION, LANGUAGE, PAIRS, TABLE, TRANSLATOR
from tests.workloads.device_watch import COPY_TO_HOST, NUMBER_READ, SHAPE_FROM_DATA, Watch, watched
from tests.workloads.pretend_device import pretend_device

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from shared.shapes import unprobed

N_STEPS, FIRST_STEPS, LAST_STEPS = 70, 2, 2
"""Steps of a training, and those at its ends that are not watched: they are probed."""

LBFGS = "workloads/engine/lbfgs.py"


@dataclass(frozen=True)
class Case:
    """A kind of step.

    Attributes:
        workload: Its problem.
        values: Parameters of its trainings.
        budget: Kernels a step, or with L-BFGS an evaluation; the drawing of batches is in it.
    """

    workload: Workload[Any]
    values: dict[str, Value]
    budget: int


def _of_field(problem: str, budget: int, **values: Value) -> Case:
    """A shipped problem of the field, by its defaults but for these."""
    return Case(load_workload(problem), values, budget)


P, C = PAIRS | {"variant": "positions_only"}, PAIRS | {"variant": "categories_only"}
FIRST = LANGUAGE | {"language": "first"}
PARITY = LANGUAGE | {"language": "parity", "attention_scale": "log_n_inv_sqrt_d"}
ADAM: dict[str, Value] = {"optimizer": "adam"}
EVERYTHING: dict[str, Value] = {
    "optimizer": "adamw",
    "learning_rate_schedule": "cosine",
    "warmup_steps": 3,
    "gradient_clip_norm": 1.0,
    "weight_decay": 0.1,
}
CASES = {
    "system P, SGD": Case(CategoryPairs(), P, 81),
    "system P, Adam, softmax": Case(CategoryPairs(), P | ADAM | {"attention_activation": "softmax"}, 96),
    "system P, sampled, Adam": Case(CategoryPairs(), P | ADAM | {"expectation": "sampled"}, 65),
    "system P, L-BFGS": Case(CategoryPairs(), P | {"optimizer": "lbfgs"}, 524),
    "system C, SGD": Case(CategoryPairs(), C, 92),
    "system C, Adam": Case(CategoryPairs(), C | ADAM, 105),
    "system C, AdamW with schedule, clipping and decay": Case(CategoryPairs(), C | EVERYTHING, 134),
    "solution 1, L-BFGS": Case(CategoryPairs(), FULL | {"variant": "solution_1"}, 548),
    "solution 2, L-BFGS": Case(CategoryPairs(), FULL | {"variant": "solution_2"}, 545),
    "solution 3, L-BFGS": Case(CategoryPairs(), FULL | {"variant": "solution_3"}, 545),
    "combined, L-BFGS": Case(CategoryPairs(), FULL | {"variant": "combined", "flavour": "lean_1"}, 662),
    "FIRST, Adam": Case(FormalLanguages(), FIRST, 202),
    "PARITY, Adam": Case(FormalLanguages(), PARITY, 202),
    "table of bigrams, SGD": Case(GPTWorkload(), TABLE | {"optimizer": "sgd"}, 194),
    "induction, Adam": Case(GPTWorkload(), INDUCTION, 333),
    "translation, Adam": Case(Translation(), TRANSLATOR, 453),
    "window sum, Adam": _of_field("abrupt_learning", 195),
    "prefix sum, Adam": _of_field("abrupt_learning", 195, task="prefix_sum"),
    "reverse, Adam": _of_field("abrupt_learning", 195, task="reverse"),
    "copy, Adam": _of_field("abrupt_learning", 195, task="copy"),
    "histogram, Adam": _of_field("histogram", 104),
    "in-context regression, SGD": _of_field("in_context_regression", 56),
    "Markov chains, AdamW": _of_field("markov_chains", 251),
    "modular addition, AdamW": _of_field("modular_addition", 152),
    "sparse parity, SGD": _of_field("sparse_parity", 43),
    "majority, Adam": _of_field("sequence_tasks", 292, task="majority"),
    "brackets, Adam": _of_field("sequence_tasks", 298, task="brackets"),
    "sort, Adam": _of_field("sequence_tasks", 292, task="sort"),
    "recall, Adam": _of_field("sequence_tasks", 297, task="recall"),
}


def steps_of(workload: Workload[Any], values: dict[str, Value], n_steps: int = N_STEPS) -> Watch:
    """What the steps between the probes of two trainings ask of the device."""
    settings = values | {"n_steps": n_steps, "stop_when_solved": False}
    trainings = [Training(defaults(workload, **settings), seed) for seed in range(2)]
    pack = Pack(unprobed(workload), trainings, pretend_device())
    pack.advance(FIRST_STEPS)
    with watched() as watch:
        assert not pack.advance(n_steps - FIRST_STEPS - LAST_STEPS)
    return watch


def a_step(count: int) -> float:
    """The share of a count over all watched steps."""
    return count / (N_STEPS - FIRST_STEPS - LAST_STEPS)


@pytest.mark.sample("system C, AdamW with schedule, clipping and decay")
@pytest.mark.parametrize("name", CASES)
def test_a_step_keeps_to_its_budget_and_never_waits(name: str) -> None:
    case = CASES[name]
    watch = steps_of(case.workload, case.values)
    if case.values.get("optimizer") == "lbfgs":
        assert {(note.kind, note.place.rpartition(":")[0]) for note in watch.notes} == {(COPY_TO_HOST, LBFGS)}
        assert a_step(watch.notes.total()) <= 1 + a_step(1)
    else:
        assert not watch.notes, "\n".join(map(str, watch.notes))
    kernels = a_step(watch.kernels.total())
    assert 0.9 * case.budget < kernels <= case.budget, watch.kernels.most_common(12)


def test_a_probe_of_a_full_model_waits_a_few_times_whatever_it_measures() -> None:
    values = FULL | {"variant": "solution_1"}
    pack = Pack(
        CategoryPairs(), [Training(defaults(CategoryPairs(), **values), seed) for seed in range(2)], pretend_device()
    )
    pack.advance(1)
    with watched() as watch:
        pack._record_probe()
    # All measures at once, all scores of heads, their labels, how far lanes are, and which are finite.
    assert watch.notes.total() == 5, "\n".join(map(str, watch.notes))
    assert 350 < watch.kernels.total() <= 369


class ReadsALength(CategoryPairs):
    """Reads a number of the device for each batch, as a branch on a value does."""

    def batches(self, lanes: Lanes[Any], steps: range) -> list[Batch]:
        text = self.batch(lanes, steps[0])["text"]
        return [{"text": text[:, : int(text.max()) + 1]}]  # waits here


class PicksTexts(CategoryPairs):
    """Picks texts by a condition."""

    def batches(self, lanes: Lanes[Any], steps: range) -> list[Batch]:
        text = self.batch(lanes, steps[0])["text"]
        is_kept = torch.ones_like(text[0, :, 0], dtype=torch.bool)
        return [{"text": text[:, is_kept]}]  # waits here


@pytest.mark.parametrize(("workload", "kind"), [(ReadsALength(), NUMBER_READ), (PicksTexts(), SHAPE_FROM_DATA)])
def test_a_wait_is_found_with_its_line(workload: Workload[Any], kind: str) -> None:
    watch = steps_of(workload, P | ADAM | {"expectation": "sampled"}, n_steps=8)
    found = [note for note in watch.notes if "step_cases.py" in note.place]
    assert [note.kind for note in found] == [kind]
    lines, first = inspect.getsourcelines(type(workload).batches)
    place = int(found[0].place.rpartition(":")[2]) - first
    assert "waits here" in lines[place]


def main() -> None:
    """Prints a row of the table for each case."""
    for name, case in CASES.items():
        watch = steps_of(case.workload, case.values)
        print(f"| {name} | {a_step(watch.kernels.total()):.0f} | {a_step(watch.notes.total()):.1f} |")  # noqa: T201


if __name__ == "__main__":
    main()
