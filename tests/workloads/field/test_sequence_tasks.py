"""Majority, brackets, sorting and associative recall: the answers are those of the definition."""

import pytest
import torch

import attnsweep as at
from attnsweep.workloads.field.sequence_tasks import Task, sequences

ASKED_NOT = -100


def _drawn(task: Task, length: int, n_kinds: int, max_depth: int = 3) -> list[tuple[list[int], list[int]]]:
    read_BT, target_BT = sequences(at.Draw(torch.tensor(2), "train", 0), task, length, n_kinds, max_depth, 100)
    return list(zip(read_BT.tolist(), target_BT.tolist(), strict=True))


def test_the_majority_is_said_at_the_end() -> None:
    for bits, answers in _drawn("majority", 7, 2):
        assert answers == [ASKED_NOT] * 6 + [int(sum(bits) >= 4)]


def test_the_bracket_that_may_close_is_the_last_open_one() -> None:
    deepest = 0
    for brackets, answers in _drawn("brackets", 20, 2):
        stack: list[int] = []
        for bracket, answer in zip(brackets, answers, strict=True):
            if bracket < 2:
                stack.append(bracket)
            else:
                assert stack.pop() == bracket - 2
            assert answer == (stack[-1] if stack else 2)
            deepest = max(deepest, len(stack))
    assert deepest == 3


def test_numbers_follow_in_order() -> None:
    for read, answers in _drawn("sort", 5, 9):
        assert read[5] == 9
        assert answers == [ASKED_NOT] * 5 + sorted(read[:5])
        assert read[6:] == answers[5:-1]


@pytest.mark.parametrize("n_kinds", [3, 9])
def test_the_value_of_the_key_is_recalled(n_kinds: int) -> None:
    for read, answers in _drawn("recall", 5, n_kinds):
        values = dict(zip(read[:-1:2], read[1::2], strict=True))
        assert len(values) == 5
        assert min(values) >= n_kinds > max(values.values())
        assert answers == [ASKED_NOT] * 10 + [values[read[-1]]]
