"""The block engine trains as the vmapped engine does. A training's bits depend neither on its block nor on its pack."""

import contextlib
import pickle
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from attnsweep.orchestrator.tools.look_back import look_back
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.compiling.lanes_last import OverLanes
from attnsweep.workloads.engine.compiling.libraries import NoCompilerError, _key, block_engine, interpreted
from attnsweep.workloads.engine.compiling.step_graph import has_lane_axis, step_inputs
from attnsweep.workloads.engine.compiling.traces import NoRuleError
from attnsweep.workloads.engine.contract import Batch, Lanes, Training, Workload
from attnsweep.workloads.engine.executors.blocks import TracedStep
from attnsweep.workloads.engine.executors.programs import KnownPrograms, Programs
from attnsweep.workloads.engine.first_order import FirstOrder
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.layout import prefixed
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.gpt import GPTWorkload
from attnsweep.workloads.testing import defaults

SMALL_P: dict[str, Any] = {"variant": "positions_only", "n_categories": 3, "n_positions": 5, "n_steps": 40}
SMALL_LANGUAGE: dict[str, Any] = {
    "train_length": 5,
    "n_epochs": 2,
    "steps_per_epoch": 4,
    "eval_batch_size": 2,
    "test_batch_size": 1,
    "stop_when_solved": False,
}
# Biases are drawn, too: of keys their true gradient is 0, so that otherwise all of their digits would be rounding.
SMALL_EXAMPLE: dict[str, Any] = {"n_steps": 20, "dtype": "float32", "stop_when_solved": False, "init_sigma": None}
SMALL_GPT: dict[str, Any] = {"batch_size": 3, "eval_batch_size": 4, "d_model": 6, "d_ffn": 7, "n_steps": 40}


class Scaled(CategoryPairs):
    """System P, whose loss has constants."""

    scales: tuple[float, float] = (0.5, 1.5)

    def loss(self, module: torch.nn.Module, batch: Batch) -> Tensor:
        return super().loss(module, batch) * (torch.tensor(self.scales).sum() - torch.tensor(1.5))


class ScaledOtherwise(Scaled):
    """The same but for its constants."""

    scales = (0.25, 1.5)


SHAPES: dict[str, tuple[Workload[Any], dict[str, Any]]] = {
    "P": (CategoryPairs(), SMALL_P),
    "P softmax, momentum, decay": (
        CategoryPairs(),
        SMALL_P | {"attention_activation": "softmax", "momentum": 0.9, "weight_decay": 0.1},
    ),
    "P sampled": (CategoryPairs(), SMALL_P | {"expectation": "sampled", "batch_size": 3}),
    "P float32, adamw, clipped, warmup": (
        CategoryPairs(),
        SMALL_P
        | {"dtype": "float32", "optimizer": "adamw", "weight_decay": 0.1, "gradient_clip_norm": 0.1}
        | {"learning_rate_schedule": "cosine", "warmup_steps": 10},
    ),
    "C": (CategoryPairs(), SMALL_P | {"variant": "categories_only", "optimizer": "adam"}),
    "full model": (
        CategoryPairs(),
        SMALL_P
        | {"variant": "solution_3", "expectation": "fixed_sample", "batch_size": 6, "optimizer": "adam"}
        | {"hidden_width": 8},
    ),
    "FIRST": (FormalLanguages(), SMALL_LANGUAGE | {"language": "first"}),
    "GPT, table, gelu": (GPTWorkload(), SMALL_GPT | {"activation": "gelu", "tied": True, "optimizer": "sgd"}),
    "GPT, induction, merged": (
        GPTWorkload(),
        SMALL_GPT | {"task": "induction", "n_words": 8, "n_tokens": 8, "n_blocks": 2, "qk": "merged"},
    ),
    "PARITY": (FormalLanguages(), SMALL_LANGUAGE | {"language": "parity", "n_layers": 2}),
    "the template": (look_back(), SMALL_EXAMPLE | {"n_words": 3, "n_tokens": 4, "optimizer": "sgd"}),
    "constants in the loss": (Scaled(), SMALL_P),
}


def trainings_of(name: str, n: int) -> list[Training[Any]]:
    workload, settings = SHAPES[name]
    rates = (1e-3, 1e-2, 0.1)
    return [Training(defaults(workload, **settings, learning_rate=rates[seed % 3]), seed) for seed in range(n)]


@pytest.mark.slow
@pytest.mark.sample("P", "C", "FIRST", "P sampled", "P softmax, momentum, decay", "GPT, table, gelu", "the template")
@pytest.mark.parametrize("name", SHAPES)
def test_a_step_of_a_block_is_the_step_of_each_lane(name: str) -> None:
    """From the same state, without the compiler."""
    workload, _ = SHAPES[name]
    pack = Pack(workload, trainings_of(name, 3))
    pack.advance(5)
    store = pack._store
    step = pack.step_graph()
    optimizer, batch = store.optimizer, store.batch_at(5)
    assert isinstance(optimizer, FirstOrder)
    inputs = step_inputs(store)
    inputs |= prefixed("rate", optimizer.ahead(range(5, 6))[0]) | prefixed("batch", batch)
    lanes_last = {
        name: (value.unsqueeze(1) if has_lane_axis(name) else value).movedim(0, -1).clone()
        for name, value in inputs.items()
    }
    after = dict(zip(step.updated, OverLanes(step.graph).run(*(lanes_last[name] for name in step.inputs)), strict=True))

    pack.advance(1)

    tolerance = 1e-12 if store.rows.dtype == torch.float64 else 1e-5
    expected = step_inputs(store)
    # Adam divides a gradient by its size, so where the true gradient is 0, what it moves by is the sign of rounding.
    is_divided = "adam_eps" in optimizer.constants
    compared = [name for name in step.updated if not (is_divided and name.startswith("parameter"))]
    for name in compared:
        found = after[name].expand(*after[name].shape[:-1], 3)[0].movedim(-1, 0)
        if found.is_floating_point():
            scale = expected[name].abs().max()
            torch.testing.assert_close(found, expected[name], rtol=0, atol=float(tolerance * scale) + 1e-30)
        else:
            assert torch.equal(found, expected[name])


def test_constants_of_a_loss_belong_to_its_program() -> None:
    """Their values are not in the code of a graph, whose digest names the program."""

    def of(workload: Workload[Any]) -> tuple[str, Tensor]:
        store = Pack(workload, trainings_of("P", 1))._store
        assert isinstance(store.optimizer, FirstOrder)
        found = TracedStep.of(store, store.batch_at(0))
        examples = [each.clone() for each in found.examples]
        interpreted(found.step, examples)(examples)
        return _key(found.step.graph, found.step.inputs, found.examples), examples[0][..., 0].flatten()

    (key, half), (other_key, quarter), (same_key, _) = of(Scaled()), of(ScaledOtherwise()), of(Scaled())
    assert key == same_key != other_key
    start = Pack(CategoryPairs(), trainings_of("P", 1))._store.rows[0, : len(half)]
    torch.testing.assert_close(half - start, 2.0 * (quarter - start))


class Sorting(CategoryPairs):
    """System P with an operation that has no rule, and that changes nothing."""

    def loss(self, module: torch.nn.Module, batch: Batch) -> Tensor:
        return super().loss(module, batch) + 0.0 * cast(Tensor, module.v_NN).flatten().sort().values.sum()


def ended(workload: Workload[Any], trainings: Sequence[Training[Any]], programs: Programs | None) -> dict[str, Any]:
    result = Pack(workload, trainings, programs=programs).train_to_end(7)
    outcome = result.at_last_probe(judged(workload, trainings[0].parameters, result.evidence).outcome)
    return {**result.evidence.metrics, "outcome": outcome, "n_steps": result.n_steps}


def differing(one: dict[str, Any], other: dict[str, Any], lanes: Any = slice(None)) -> list[str]:
    return [
        name for name in one if not np.array_equal(one[name][lanes], other[name], equal_nan=one[name].dtype.kind == "f")
    ]


@pytest.mark.slow
def test_a_shape_without_a_program_trains_as_without_blocks() -> None:
    trainings = trainings_of("P", 3)
    assert differing(ended(Sorting(), trainings, None), ended(Sorting(), trainings, Programs())) == []
    with pytest.raises(
        NoRuleError,
        match=r"^the operation aten\.sort\.default cannot be compiled for several trainings at once$",
    ):
        Pack(Sorting(), trainings).compiled_graph()


@pytest.fixture(scope="module")
def programs(compiled_blocks: None) -> Programs:
    """Those of this module."""
    return Programs()


@pytest.mark.slow
def test_bits_depend_neither_on_the_place_in_a_block_nor_on_the_neighbours(programs: Programs) -> None:
    workload = CategoryPairs()
    trainings = trainings_of("P", 70)
    together = ended(workload, trainings, programs)
    vmapped = ended(workload, trainings, None)
    assert list(together["outcome"]) == list(vmapped["outcome"])
    np.testing.assert_allclose(together["eval_loss"], vmapped["eval_loss"], rtol=1e-9)
    assert differing(together, ended(workload, trainings[::-1], programs), slice(None, None, -1)) == []
    assert differing(together, ended(workload, trainings[68:69], programs), slice(68, 69)) == []
    elsewhere = [*trainings[40:], *trainings[:7]]
    assert differing(together, ended(workload, elsewhere, programs), [*range(40, 70), *range(7)]) == []

    # A training that turns to infinity stays alone with it.
    far: dict[str, Any] = {"learning_rate": 1e6, "init_sigma": 1.0}
    wild = [Training(defaults(workload, **SMALL_P, **far), 5), *trainings[1:]]
    found = ended(workload, wild, programs)
    assert found["n_steps"][0] < SMALL_P["n_steps"]
    assert found["n_steps"][0] == ended(workload, wild, None)["n_steps"][0]
    rest = {name: values[1:] for name, values in found.items()}
    assert differing(together, rest, slice(1, None)) == []


class Growing(CategoryPairs):
    """System P on batches of two texts, and of four from step 9 on."""

    def batch(self, lanes: Lanes[Any], step: int) -> Batch:
        text = super().batch(lanes, step)["text"]
        return {"text": text if step < 9 else torch.cat([text, text], 1)}


@pytest.mark.slow
def test_a_checkpoint_goes_on_to_the_same_bits(programs: Programs) -> None:
    workload, trainings = CategoryPairs(), trainings_of("P", 5)
    pack = Pack(workload, trainings, programs=programs)
    pack.advance(19)
    resumed = Pack.resumed(workload, trainings, pack.checkpoint(), programs=programs)
    resumed.train_to_end()
    undisturbed = ended(workload, trainings, programs)
    evidence = resumed.result().evidence.metrics
    assert [name for name in evidence if not np.array_equal(evidence[name], undisturbed[name], equal_nan=True)] == []


@pytest.mark.slow
def test_a_program_of_other_rules_or_a_damaged_one_is_not_used(
    compiled_blocks: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whether the rules of `lanes_last` have changed, the graph of one training does not tell."""
    from attnsweep.workloads.engine.compiling import libraries

    def compiler(graph: Any, examples: Any, *, options: dict[str, Any]) -> str:
        n_compiled.append(1)
        file = Path(options["aot_inductor.output_path"])
        file.touch()
        return str(file)

    def compile_() -> int:
        with contextlib.suppress(RuntimeError):  # An empty file is no program.
            Pack(CategoryPairs(), trainings_of("P", 1), programs=Programs()).compile()
        return len(n_compiled)

    n_compiled: list[int] = []
    rules = shutil.copytree(libraries._SOURCE, tmp_path / "source") / "compiling" / "lanes_last.py"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch._inductor, "aot_compile", compiler)
    monkeypatch.setattr(libraries, "_SOURCE", rules.parent.parent)
    assert [compile_(), compile_()] == [1, 1]
    [program] = (tmp_path / "attnsweep" / "programs").glob("*.so")
    program.write_bytes(b"what a full disk left of it")
    assert [compile_(), compile_()] == [2, 2]
    rules.write_text(rules.read_text() + "# A change.")
    assert compile_() == 3


@pytest.mark.slow
def test_a_program_that_was_sent_is_neither_traced_nor_compiled(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workload, trainings, known = CategoryPairs(), trainings_of("P", 2), KnownPrograms()
    expected = ended(workload, trainings, Programs(known))
    sent = pickle.loads(pickle.dumps(known.as_sent()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(TracedStep, "of", None)
    assert differing(expected, ended(workload, trainings, Programs(sent))) == []
    # It is not kept among the programs that this machine has compiled.
    assert list((tmp_path / "attnsweep" / "programs").iterdir()) == []


def test_programs_are_kept_where_this_user_alone_can_write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "attnsweep" / "programs").mkdir(parents=True)
    (tmp_path / "attnsweep" / "programs").chmod(0o777)
    with contextlib.suppress(NoCompilerError):
        block_engine()
    assert stat.S_IMODE((tmp_path / "attnsweep" / "programs").stat().st_mode) == 0o700

    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(NoCompilerError, match=r"compiled programs cannot be stored in .*file/attnsweep/programs"):
        block_engine()


@pytest.mark.scale
@pytest.mark.parametrize("name", [name for name in SHAPES if name != "P"])
def test_whole_trainings_end_alike(name: str, programs: Programs) -> None:
    workload, _ = SHAPES[name]
    trainings = trainings_of(name, 20)
    found, expected = (ended(workload, trainings, each) for each in (programs, None))
    assert list(found["outcome"]) == list(expected["outcome"])
    assert list(found["n_steps"]) == list(expected["n_steps"])
    assert differing(found, ended(workload, trainings[3:4], programs), slice(3, 4)) == []
