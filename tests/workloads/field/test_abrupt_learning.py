"""The moving-window sum and its kin: answers, levels in closed form, and what is measured on the plateau."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import attnsweep as at
from attnsweep.workloads.field.abrupt_learning import Task, collapse, guess_level, optimal_keys, repetition, sequences

TASKS: tuple[Task, ...] = ("window_sum", "prefix_sum", "permutation", "reverse", "copy")


def _answers(task: Task, numbers: Sequence[int], places: Sequence[int], p: int) -> list[int]:
    """By the definition, one after the other."""
    n = len(numbers)
    return {
        "window_sum": [numbers[0], *((numbers[i - 1] + numbers[i]) % p for i in range(1, n))],
        "prefix_sum": [sum(numbers[: i + 1]) % p for i in range(n)],
        "permutation": [numbers[place] for place in places],
        "reverse": list(numbers)[::-1],
        "copy": list(numbers),
    }[task]


@pytest.mark.parametrize("task", TASKS)
def test_the_last_tokens_are_the_answers(task: Task) -> None:
    read_BT, next_BT = sequences(at.Draw(torch.tensor(3), "train", 0), task, length=5, n_numbers=4, batch_size=20)
    assert torch.equal(read_BT[:, 1:], next_BT[:, :-1])
    for read, following in zip(read_BT.tolist(), next_BT.tolist(), strict=True):
        numbers, places = read[:5], [place - 6 for place in read[6:11]] if task == "permutation" else []
        assert read[-5] == 5
        assert following[-5:] == _answers(task, numbers, places, 5)
        assert sorted(places) in ([], [0, 1, 2, 3, 4])


@pytest.mark.parametrize("task", [task for task in TASKS if task != "permutation"])
def test_the_tokens_that_an_answer_needs_say_what_it_is(task: Task) -> None:
    read_BT, next_BT = sequences(at.Draw(torch.tensor(3), "train", 0), task, length=4, n_numbers=3, batch_size=300)
    for answer, needed_T in enumerate(optimal_keys(task, 4)):
        known: dict[tuple[int, ...], set[int]] = {}
        for seen, said in zip(read_BT[:, needed_T].tolist(), next_BT[:, -4 + answer].tolist(), strict=True):
            known.setdefault(tuple(seen), set()).add(said)
        assert all(len(each) == 1 for each in known.values())
        assert not needed_T[4 + answer + 1 :].any()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("n_known", [0, 1])
def test_the_levels_are_the_entropies_of_each_place(task: Task, n_known: int) -> None:
    n, m = 4, 3
    counts = [Counter[int]() for _ in range(n)]
    for numbers in itertools.product(range(1, m + 1), repeat=n):
        for places in itertools.permutations(range(n)) if task == "permutation" else [()]:
            for count, answer in zip(counts, _answers(task, numbers, places, m + 1), strict=True):
                count[answer] += 1
    entropies = [_entropy([*count.values()]) for count in counts]
    of_places = n * math.log(n) if task == "permutation" else 0.0
    total = (n - 1) * math.log(m) + of_places + sum(entropies[n_known:])
    n_read = 3 * n + 1 if task == "permutation" else 2 * n
    assert guess_level(task, n, m, n_known) == pytest.approx(total / n_read, rel=1e-12)


def _entropy(counts: list[int]) -> float:
    share = np.array(counts, np.float64) / sum(counts)
    return float(-(share * np.log(share)).sum())


class Parrot(nn.Module):
    """Says the token before again; its states are given."""

    def __init__(self, state_BTD: Tensor) -> None:
        super().__init__()
        self.state_BTD, self.last_norm = state_BTD, nn.Identity()

    def forward(self, token_BT: Tensor) -> Tensor:
        return nn.functional.one_hot(token_BT, 9).double()

    def states(self, token_BT: Tensor) -> tuple[Tensor, list[Tensor]]:
        del token_BT
        return self.state_BTD, []


def test_repetition_and_collapse_are_those_of_the_definition() -> None:
    token_BT, _ = sequences(at.Draw(torch.tensor(0), "train", 0), "copy", 5, 7, 3)
    state_BTD = torch.randn(3, 10, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    parrot = Parrot(state_BTD)
    assert repetition(parrot, token_BT, 5) == 1
    pairs = [(one, two) for one in range(6, 10) for two in range(6, one)]
    cosines = [nn.functional.cosine_similarity(state_BTD[:, one], state_BTD[:, two]).mean() for one, two in pairs]
    assert collapse(parrot, token_BT, 5) == pytest.approx(float(torch.stack(cosines).mean()))
