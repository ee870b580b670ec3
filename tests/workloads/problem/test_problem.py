"""A problem put together from functions is a workload: its parameters, its data, its levels and its verdicts."""

import math
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch import Tensor, nn

import attnsweep as at
from attnsweep.workloads.diagnostics.promotion import certify_stuck
from attnsweep.workloads.engine.contract import Lanes, Training
from attnsweep.workloads.engine.judging import first_held, judged
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.result import PackResult
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.problem.data import shuffled
from attnsweep.workloads.problem.functions import LOSSES
from attnsweep.workloads.registry import check_declarations

CPU = torch.device("cpu")


def linear(n: int = 3, width: float = 1.0) -> nn.Module:
    del width
    return nn.Linear(n, n)


def echo(draw: at.Draw, n: int = 3, batch_size: int = 16, noise: float = 0.0) -> tuple[Tensor, Tensor]:
    x = draw.normal(batch_size, n)
    return x, x + noise * draw.normal(batch_size, n)


def table(p: int = 5) -> tuple[Tensor, Tensor]:
    pairs = torch.cartesian_prod(torch.arange(p), torch.arange(p))
    return pairs, pairs.sum(1) % p


class Adder(nn.Module):
    def __init__(self, p: int) -> None:
        super().__init__()
        self.token = nn.Embedding(p, 8)
        self.head = nn.Linear(16, p)

    def forward(self, pairs: Tensor) -> Tensor:
        answer: Tensor = self.head(self.token(pairs).flatten(-2))
        return answer


def adder(p: int = 5) -> nn.Module:
    return Adder(p)


ECHO = at.problem("echo", model=linear, data=echo, loss="mse", solved=0.01)
ADDING = at.problem(
    "adding",
    model=adder,
    data=table,
    loss="cross_entropy",
    solved="accuracy >= 0.95",
    outcomes={"memorized": at.Outcome("knows its pairs only", is_stuck=True, when="train_accuracy >= 0.99")},
    events={
        "memorized": "train_accuracy >= 0.99",
        "generalized": lambda _, evidence: evidence.metrics["accuracy"] > 0.9,
    },
    defaults={"optimizer": "adam", "learning_rate": 0.03, "n_steps": 300},
)


def _lanes(kind: type[at.Problem], n_lanes: int = 2, **values: Any) -> Lanes[Any]:
    return Lanes([Training(kind.parameters.resolve(values), seed) for seed in range(n_lanes)], CPU)


def _trained(kind: type[at.Problem], n_lanes: int = 2, **values: Any) -> PackResult:
    return Pack(kind(), list(_lanes(kind, n_lanes, **values).trainings)).train_to_end()


def test_arguments_are_parameters_and_what_may_change_a_shape_is_static() -> None:
    check_declarations(ECHO)
    declared = ECHO.parameters.declared()
    assert {name: declared[name].default for name in ("n", "width", "batch_size", "noise", "init_sigma")} == {
        **{"n": 3, "width": 1.0, "batch_size": 16, "noise": 0.0},
        "init_sigma": None,
    }
    assert [name for name in ("n", "width", "batch_size", "noise") if declared[name].static] == ["n", "batch_size"]
    assert {"train_fraction", "batch_size"} <= set(ADDING.parameters.declared())


def test_an_annotation_may_name_choices_and_bounds() -> None:
    def model(norm: Literal["pre", "post"] = "pre", depth: int = at.parameter(2, "blocks", low=1)) -> nn.Module:
        return nn.Linear(depth, len(norm))

    declared = at.problem("one", model=model, data=echo, loss="mse", solved=0.1).parameters.declared()
    assert declared["norm"].choices == ("pre", "post")
    assert (declared["depth"].low, declared["depth"].doc, declared["depth"].static) == (1, "blocks", True)


def test_data_are_drawn_from_each_trainings_own_seed_and_step() -> None:
    lanes, problem = _lanes(ECHO), ECHO()
    batch = problem.batch(lanes, 3)
    assert batch["inputs/0"].shape == (2, 16, 3)
    assert batch["inputs/0"].dtype == torch.float32
    alone = problem.batch(Lanes([lanes.trainings[1]], CPU), 3)
    assert torch.equal(alone["inputs/0"][0], batch["inputs/0"][1])
    assert not torch.equal(problem.batch(lanes, 4)["inputs/0"], batch["inputs/0"])
    held_out = problem.eval_batch(lanes)["inputs/0"]
    assert held_out.shape == (2, 512, 3)
    assert not torch.equal(held_out[:, :16], batch["inputs/0"])


def test_what_is_fixed_is_the_same_at_all_steps_and_another_for_each_training() -> None:
    def task(draw: at.Draw) -> tuple[Tensor, Tensor]:
        return draw.uniform(4, 3), draw.fixed.uniform(4, 3)

    kind = at.problem("fixed", model=linear, data=task, loss="mse", solved=0.1)
    lanes, problem = _lanes(kind), kind()
    first, second = problem.batch(lanes, 0), problem.batch(lanes, 1)
    assert torch.equal(first["target"], second["target"])
    assert torch.equal(first["target"], problem.eval_batch(lanes)["target"])
    assert not torch.equal(first["target"][0], first["target"][1])
    assert not torch.equal(first["inputs/0"], second["inputs/0"])


@given(some.integers(2, 300), some.integers(0, 9))
def test_places_of_a_random_order_hold_each_number_once(n: int, turn: int) -> None:
    streams, place = Streams(torch.tensor([1, 2])), torch.arange(n).expand(2, -1)
    order = shuffled(streams, "split", place, n, turn)
    assert torch.equal(order.sort(1).values, place)
    assert torch.equal(shuffled(streams, "split", place[:, n // 2 :], n, turn), order[:, n // 2 :])


def _kind_of_data(steps: int, changes: dict[str, Any]) -> tuple[type[at.Problem], dict[str, Any]]:
    def drawn(draw: at.Draw, noise: float = 0.1, batch_size: int = 5) -> dict[str, Tensor]:
        x = draw.normal(batch_size, 3) @ draw.fixed.normal(3, 3)
        kind = draw.integers(4, batch_size).unsqueeze(1)
        return {"inputs": x, "target": x + noise * draw.uniform(batch_size, 3), "kind": draw.permutation(4)[kind]}

    def own(fixed: at.Draw, n_rows: int = 40) -> tuple[Tensor, Tensor]:
        x = fixed.normal(n_rows, 3)
        return x, x.cos()

    data: dict[str, Any] = {
        "drawn": drawn,
        "own": own,
        "table": lambda: (torch.randn(30, 3, generator=torch.Generator()),) * 2,
    }
    chosen = dict(changes)
    loss = lambda output, target: (output - target).square().mean()  # noqa: E731
    return at.problem("many", model=linear, data=data[chosen.pop("data")], loss=loss), {"n_steps": steps, **chosen}


@given(
    some.integers(1, 5),
    some.integers(0, 40),
    some.sampled_from(
        [
            {"data": "drawn"},
            {"data": "own", "batch_size": 3},
            {"data": "own"},
            {"data": "table", "batch_size": 4, "replacement": True},
            {"data": "table", "batch_size": 7, "train_fraction": 0.9},
        ]
    ),
)
def test_many_steps_drawn_together_are_those_drawn_one_by_one(
    n_lanes: int, first: int, changes: dict[str, Any]
) -> None:
    kind, values = _kind_of_data(100, changes)
    problem, lanes = kind(), _lanes(kind, n_lanes, **values)
    problem.batches(lanes, range(first, 101))  # how many are drawn together is known from the first draw on
    together = problem.batches(lanes, range(first, first + 20))
    assert len(together) == 20
    for step, batch in enumerate(together, first):
        alone = Lanes([lanes.trainings[-1]], CPU)
        for drawn, lane in ((kind().batch(lanes, step), 0), (kind().batch(alone, step), n_lanes - 1)):
            assert all(torch.equal(drawn[name], batch[name][lane:][: len(drawn[name])]) for name in batch)


def test_each_training_has_its_own_split_of_the_table() -> None:
    lanes, problem = _lanes(ADDING, train_fraction=0.6), ADDING()
    trained, held_out = problem.batch(lanes, 0), problem.eval_batch(lanes)
    assert not torch.equal(*trained["target"])
    for lane in range(2):
        pairs, others = (batch["inputs/0"][lane] for batch in (trained, held_out))
        assert (len(pairs), len(others)) == (15, 10)
        assert torch.equal(pairs.sum(1) % 5, trained["target"][lane])
        assert len({*map(tuple, pairs.tolist()), *map(tuple, others.tolist())}) == 25
        assert torch.equal(held_out["train/inputs/0"][lane], pairs)
    some_rows = problem.batch(_lanes(ADDING, train_fraction=0.6, batch_size=500, replacement=True), 0)["inputs/0"]
    assert {*map(tuple, some_rows[0].tolist())} == {*map(tuple, trained["inputs/0"][0].tolist())}


def test_batches_of_a_table_train_like_a_plain_loop() -> None:
    values: dict[str, Any] = {
        "n_steps": 20,
        "batch_size": 4,
        "dtype": "float64",
        "optimizer": "sgd",
        "stop_when_solved": False,
    }
    pack = Pack(ADDING(), list(lanes := _lanes(ADDING, **values).trainings))
    start = pack.final_state(np.arange(2))[1]
    pack.train_to_end()
    ends = pack.final_state(np.arange(2))[1]
    for lane, training in enumerate(lanes):
        module = adder().double()
        module.load_state_dict({name: start[name][lane] for name in module.state_dict()})
        optimizer = torch.optim.SGD(module.parameters(), lr=0.03)
        for step in range(20):
            batch = ADDING().batch(Lanes([training], CPU), step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(batch["inputs/0"][0]), batch["target"][0]).backward()
            optimizer.step()
        for name, value in module.named_parameters():
            torch.testing.assert_close(ends[name][lane], value.detach(), rtol=1e-10, atol=1e-12)


def test_a_tensor_of_the_data_may_have_a_name_that_losses_take() -> None:
    def data(draw: at.Draw, batch_size: int = 4) -> dict[str, Tensor]:
        x = draw.normal(batch_size, 3)
        return {"inputs": x, "target": x, "counts": torch.tensor([1.0, 0.0, 0.0]).to(x)}

    def loss(output: Tensor, target: Tensor, counts: Tensor) -> Tensor:
        error: Tensor = (output - target).square() * counts
        return error.mean()

    kind = at.problem("named", model=linear, data=data, loss=loss, metrics={"share": lambda counts: counts.mean()})
    evidence = _trained(kind, n_steps=1).evidence
    assert evidence.metrics["share"].tolist() == [[pytest.approx(1 / 3)] * 2] * 2
    wrong = at.problem("named", model=linear, data=data, loss=loss, metrics={"share": lambda wanted: wanted.mean()})
    with pytest.raises(SpecError) as refused:
        _trained(wrong, n_steps=1)
    assert refused.value.subject == "wanted of metric share"


def test_initial_values_come_from_a_function_of_module_draw_and_parameters() -> None:
    def initial(module: Any, draw: at.Draw, spread: float = 1.0) -> dict[str, Tensor]:
        return {"weight": spread * draw.normal(3, 3) + 0 * module.weight}

    kind = at.problem("own", model=linear, data=echo, loss="mse", initial=initial)
    trainings = [Training(kind.parameters.resolve({"spread": spread}), 5) for spread in (1.0, 2.0)]
    start = Pack(kind(), trainings).final_state(np.arange(2))[1]
    torch.testing.assert_close(2 * start["weight"][0], start["weight"][1])
    assert start["bias"].abs().min() > 0
    wrong = at.problem("own", model=linear, data=echo, loss="mse", initial=lambda draw: {"wieght": draw.normal(3, 3)})
    with pytest.raises(SpecError) as refused:
        Pack(wrong(), trainings)
    assert refused.value.subject == "initial"


def test_a_certificate_tests_the_trainings_of_its_outcome() -> None:
    def stays(module: Any, output: Tensor, target: Tensor) -> Tensor:
        is_large: Tensor = (output - target).abs().mean() > module.weight.abs().max()
        return is_large

    kind = at.problem("idle", model=linear, data=echo, loss="mse", certificates={"degenerate_zero": stays})
    lanes = _lanes(kind, n_steps=1, learning_rate=1e-12)
    pack = Pack(kind(), list(lanes.trainings), start={"weight": torch.zeros(2, 3, 3), "bias": torch.zeros(2, 3)})
    result = pack.train_to_end()
    verdicts = judged(kind(), lanes.shared, result.evidence)
    found = certify_stuck(kind(), pack, np.ones(2), result, verdicts)
    assert [(each.test, each.agrees) for each in found if each] == [("stays", True)] * 2


@pytest.mark.parametrize(
    ("probe_steps", "expected"),
    [(30, (0, 30, 60, 90, 100)), ([7, 200], (0, 7, 100)), (lambda n_steps: range(0, n_steps, 50), (0, 50, 100))],
)
def test_probes_are_every_so_many_steps_or_at_given_ones(probe_steps: Any, expected: tuple[int, ...]) -> None:
    kind = at.problem("probed", model=linear, data=echo, loss="mse", probe_steps=probe_steps)
    assert kind().probe_steps(kind.parameters.resolve({"n_steps": 100})) == expected


def test_levels_are_those_of_predictors_that_know_little() -> None:
    result = _trained(ADDING, n_steps=1)
    assert result.evidence.levels["zero"] == pytest.approx([math.log(5)] * 2, rel=1e-6)
    assert (result.evidence.levels["unigram"] <= math.log(5)).all()
    assert np.isnan(result.evidence.levels["solved"]).all()
    mse = _trained(ECHO, n_steps=1).evidence.levels
    assert mse["zero"] == pytest.approx([1, 1], rel=0.2)
    assert mse["mean"] == pytest.approx(mse["zero"], rel=0.05)
    assert mse["solved"].tolist() == pytest.approx([0.01, 0.01])


def test_a_table_is_memorized_or_generalized_and_the_events_say_when() -> None:
    result = _trained(ADDING, n_lanes=4, train_fraction=0.5, stop_when_solved=False)
    problem, parameters = ADDING(), ADDING.parameters.resolve({})
    outcomes = result.at_last_probe(judged(problem, parameters, result.evidence).outcome)
    metrics = result.evidence.metrics
    assert set(outcomes) <= {"memorized", "solved"}
    first = first_held(problem, parameters, result.evidence, result.last_probe)
    for lane in range(4):
        held = np.flatnonzero(metrics["train_accuracy"][lane] >= 0.99)
        assert first["memorized"][lane] == held[0]


def test_a_loss_of_ones_own_may_name_what_it_is_computed_from() -> None:
    def loss(output: Tensor, target: Tensor, margin: float = 0.5) -> Tensor:
        return (output - target).abs().clamp(min=margin).mean()

    kind = at.problem(
        "own",
        model=linear,
        data=echo,
        loss=loss,
        solved=0.1,
        metrics={"norm": lambda module: module.weight.square().sum()},
        levels={"margin": lambda margin: margin},
    )
    trainings = [Training(kind.parameters.resolve({"margin": margin, "n_steps": 2}), 1) for margin in (0.25, 4.0)]
    evidence = Pack(kind(), trainings).train_to_end().evidence
    assert evidence.levels["margin"].tolist() == [0.25, 4.0]
    assert evidence.metrics["loss"][1].tolist() == pytest.approx([4.0] * evidence.metrics["loss"].shape[1], abs=0.3)
    assert evidence.metrics["norm"].shape == evidence.metrics["loss"].shape


class OneHead(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(n, n))

    def attention(self, x: Tensor) -> Tensor:
        return self.logits.softmax(-1).expand(1, len(x), 1, -1, -1)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.logits.softmax(-1)


def test_the_role_of_a_head_is_that_of_its_highest_score() -> None:
    kind = at.problem(
        "heads",
        model=lambda n: OneHead(n),
        data=echo,
        loss="mse",
        solved=0.1,
        weights=lambda module, inputs: module.attention(inputs),
        heads={
            "first": lambda weights: weights[..., 0].mean((1, 3)),
            "own": lambda weights: weights.diagonal(dim1=-2, dim2=-1).mean((1, 3)),
        },
    )
    lanes = _lanes(kind, n_lanes=3)
    logits = torch.zeros(3, 3, 3)
    logits[1] += 9 * torch.eye(3)
    logits[2, :, 0] = 9
    heads = kind().score_heads(lanes, {"logits": logits})
    assert heads is not None
    assert heads.role[:, 0, 0].tolist() == ["none", "own", "first"]
    assert heads.scores["own"][:, 0, 0].tolist() == pytest.approx([1 / 3, 1, 1 / 3], abs=1e-3)


def test_targets_that_do_not_count_are_in_no_accuracy() -> None:
    output, target = torch.tensor([[[9.0, 0.0], [0.0, 9.0]]]), torch.tensor([[0, -100]])
    values = {"output": output, "target": target}
    assert float(LOSSES["cross_entropy"].metrics(values)["accuracy"]) == 1
    assert float(LOSSES["cross_entropy"].of(values)) < 1e-3
    assert float(LOSSES["cross_entropy"].levels(values)["unigram"]) == 0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": lambda depth: nn.Linear(depth, depth)}, "depth of model"),
        ({"model": lambda n=[3]: n}, "n of model"),
        ({"model": lambda learning_rate=1.0: learning_rate}, "learning_rate of model"),
        ({"data": lambda draw, n=4: (draw, n)}, "n of data"),
        ({"data": lambda *draw: draw}, "data"),
        ({"loss": "mes"}, "loss"),
        ({"solved": "accuracy"}, "a condition"),
        ({"solved": [1]}, "the condition of solved"),
        ({"outcomes": {"won": at.Outcome("won")}}, "the condition of the outcome won"),
        ({"events": {"half": 0.5}}, "the condition of the event half"),
        ({"defaults": {"n": 4}}, "defaults"),
        ({"data": lambda draw, static_key=1: (draw, static_key)}, "static_key of data"),
        ({"loss": lambda output, weights=1.0: output * weights}, "weights of loss"),
        ({"data": lambda draw, n_steps=7: (draw, n_steps)}, "n_steps of data"),
        ({"metrics": {"loss": lambda output: output.mean()}}, "metrics"),
        ({"metrics": {"my metric": lambda output: output.mean()}}, "metrics"),
        ({"data": table, "metrics": {"train_accuracy": lambda output: output}, "loss": "cross_entropy"}, "metrics"),
        ({"levels": {"solved": lambda output: output.mean()}}, "levels"),
        ({"heads": {"none": lambda weights: weights}}, "heads"),
        ({"eval_step": 3}, "eval_step"),
        ({"probe_steps": 0}, "probe_steps"),
        ({"data": lambda draw, fixed: (draw, fixed)}, "data"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(changes: dict[str, Any], told: str) -> None:
    settings: dict[str, Any] = {"model": linear, "data": echo, "loss": "mse", "solved": 0.1}
    with pytest.raises(SpecError) as refused:
        at.problem("wrong", **settings | changes)
    assert told in str(refused.value)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_scripted_module_is_refused_with_the_way_out() -> None:
    kind = at.problem("scripted", model=lambda: torch.jit.script(nn.Linear(3, 3)), data=echo, loss="mse")
    with pytest.raises(SpecError, match=r"leave out torch\.compile or torch\.jit"):
        _trained(kind, n_steps=1)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (lambda: torch.zeros(3), "data"),
        (lambda: (torch.zeros(3, 3), torch.zeros(4, 3)), "data"),
        (lambda: (torch.zeros(3, 3), torch.randn(3, 3)), "other tensors when"),
        (lambda: (torch.zeros(3, 3), torch.tensor(np.random.normal(size=(3, 3)))), "other tensors when"),
    ],
)
def test_a_wrong_table_is_refused(data: Any, told: str) -> None:
    kind = at.problem("wrong", model=linear, data=data, loss="mse", solved=0.1)
    with pytest.raises(SpecError) as refused:
        kind().batches(_lanes(kind), range(1))
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("loss", "output", "target"),
    [
        ("mse", torch.zeros(4, 1), torch.zeros(4)),
        ("mse", torch.zeros(4, 1), torch.zeros(4, 1, dtype=torch.bool)),
        ("cross_entropy", torch.zeros(4, 3), torch.zeros(4, 1, dtype=torch.int64)),
        ("cross_entropy", torch.zeros(3), torch.zeros((), dtype=torch.int64)),
        ("cross_entropy", torch.zeros(4, 3), torch.zeros(4)),
        ("cross_entropy", torch.zeros(4, 3), torch.full((4, 3), 1 / 3)),
    ],
)
def test_a_named_loss_refuses_a_target_that_does_not_fit_the_output(loss: str, output: Tensor, target: Tensor) -> None:
    values = {"output": output, "target": target}
    for compute in (LOSSES[loss].of, LOSSES[loss].levels, *([LOSSES[loss].metrics] * (loss == "cross_entropy"))):
        with pytest.raises(SpecError) as refused:
            compute(values)
        assert refused.value.subject == "loss"
        assert str(tuple(output.shape)) in str(refused.value.given)
        assert str(tuple(target.shape)) in str(refused.value.given)


def _staged(draw: at.Draw, step: int, n_steps: int, batch_size: int = 4) -> tuple[Tensor, Tensor]:
    x = draw.normal(batch_size, 3)
    return x, torch.full_like(x, float(step)) + 0 * n_steps


@pytest.mark.parametrize(
    ("settings", "values", "step"),
    [({}, {}, 6), ({"eval_step": 2}, {}, 2), ({"eval_step": 0}, {}, 0), ({}, {"optimizer": "lbfgs"}, 0)],
)
def test_held_out_data_are_those_of_the_last_step_or_of_the_chosen_one(
    settings: dict[str, Any], values: dict[str, Any], step: int
) -> None:
    kind = at.problem("staged", model=linear, data=_staged, loss="mse", **settings)
    assert kind().eval_batch(_lanes(kind, n_steps=7, **values))["target"].unique().tolist() == [step]


class Moody(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x)
        return 100 * y if self.training else y


def test_modules_are_measured_in_evaluation_mode_and_trained_in_their_own() -> None:
    kind = at.problem(
        "moody",
        model=Moody,
        data=echo,
        loss="mse",
        metrics={"is_training": lambda module, output: output.new_tensor(float(module.training))},
        levels={"is_training": lambda module: float(module.training)},
        defaults={"n_steps": 1, "learning_rate": 1e-9},
    )
    evidence = _trained(kind).evidence
    assert (evidence.metrics["loss"] > 100 * evidence.metrics["eval_loss"]).all()
    assert evidence.metrics["is_training"].tolist() == [[0, 0], [0, 0]]
    assert evidence.levels["is_training"].tolist() == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ECHO, ADDING])
def test_conformance(kind: type[at.Problem]) -> None:
    values = [{"n_steps": 20}, {"n_steps": 20, "init_sigma": 0.1}]
    at.check_workload(kind(), [kind.parameters.resolve(each) for each in values], quick=True)
