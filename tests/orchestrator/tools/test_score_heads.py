"""`attnsweep score-heads`: its scores of planted heads, and its refusals of files."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnsweep.workloads.diagnostics.matrices import score_matrices
from attnsweep.workloads.diagnostics.shuffles import permutation_test
from attnsweep.workloads.diagnostics.structure import distances_to_blocks
from attnsweep.workloads.errors import SpecError, UserError
from tests.orchestrator.commands import command

N = 12


def _planted() -> np.ndarray:
    """Identity, previous token, two blocks of four rows, uniform."""
    blocks = np.eye(N)
    for start in (1, 7):
        blocks[start : start + 4] = np.eye(N)[start]
    previous = np.eye(N)[[0, *range(N - 1)]]
    return np.stack([np.eye(N), previous, blocks, np.full((N, N), 1 / N)]).astype(np.float32)


def _scored(*arguments: object) -> list[dict[str, Any]]:
    heads: list[dict[str, Any]] = command("score-heads", *arguments, "--json").json["heads"]
    return heads


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.save(tmp_path / "heads.npy", _planted())
    return tmp_path / "heads.npy"


def test_planted_heads_as_json(file: Path) -> None:
    content = command("score-heads", file, "--json").json
    assert content["not_measured"] == ["duplicate_token", "induction", "rare_token", "syntactic"]
    identity, previous, blocks, uniform = content["heads"]
    assert [each["positional"] for each in content["heads"]] == [True, True, False, False]
    assert (identity["positional_offset"], identity["sigma_1"], identity["sigma_2"]) == (0, 0, 0)
    assert (previous["positional_offset"], previous["positional_share"]) == (-1, 1)
    assert previous["previous_token"] == pytest.approx((N - 1) / N)
    assert previous["sigma_2_by_window"][:2] == [2 * (N - 1), 0]
    assert (blocks["window"], blocks["num_pos"], blocks["sigma_3"]) == (4, 2, 0)
    assert blocks["blocks"] == [{"start": 1, "column": 1}, {"start": 7, "column": 7}]
    assert blocks["sigma_3_z"] < -5
    assert uniform["positional_offset"] is None
    assert uniform["sigma_1_z"] is None


def test_a_window_and_a_number_of_blocks_are_taken_as_given(file: Path) -> None:
    for head in _scored(file, "--window", "3", "--num-pos", "1"):
        assert (head["window"], head["num_pos"], len(head["blocks"])) == (3, 1, 1)
        assert head["sigma_2"] == head["sigma_2_by_window"][3]


def test_the_table_has_a_row_per_head(file: Path) -> None:
    ended = command("score-heads", file)
    assert (ended.code, ended.err) == (0, "")
    rows = [line.split() for line in ended.out.splitlines()]
    assert [row[:3] for row in rows if row and row[0].isdigit()] == [
        ["0", "positional", "0"], ["1", "positional", "-1"], ["2", "?", "0"], ["3", "?", "-"]
    ]  # fmt: skip
    assert "Not measured, for want of tokens: duplicate_token, induction, rare_token, syntactic." in ended.out


class _Planted:
    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("executed"),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "FILE: got 'heads.npy', expected a .npy file; check the path"),
        (b"hello", "FILE: got 'heads.npy', expected an array of numbers in NumPy's .npy format; write the array with"),
        (pickle.dumps(_Planted()), "FILE: got 'heads.npy', expected an array of numbers"),
        (np.array([_Planted()], dtype=object), "FILE: got 'heads.npy', expected an array of numbers"),
        (np.array(["a"]), "FILE: got 'heads.npy', expected an array of numbers"),
        (np.eye(3), "FILE.npy: got 'an array of the shape (3, 3)', expected an array of the shape (n_heads,"),
        (np.ones((2, 3, 4)), "FILE.npy: got 'an array of the shape (2, 3, 4)', expected square matrices"),
        (np.full((1, 2, 2), np.nan), "FILE.npy: got 'attention weights with 4 entries that are NaN or infinite',"
            " expected attention weights that are finite"),
        (-np.eye(3)[None], "FILE.npy: got 'attention weights with the negative entry -1', expected attention weights"
            " that are probabilities"),
        (np.eye(3)[None] / 0.9, "FILE.npy: got 'attention weights whose rows sum to 1.11111 up to 1.11111', expected"
            " rows that sum to 1"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_one_line(
    content: bytes | np.ndarray | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if isinstance(content, bytes):
        Path("heads.npy").write_bytes(content)
    elif content is not None:
        np.save("heads.npy", content, allow_pickle=True)
    ended = command("score-heads", "heads.npy")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith(f"attnsweep: {message}")
    assert not Path("executed").exists()


def test_blocks_that_do_not_fit(file: Path) -> None:
    ended = command("score-heads", file, "--window", "5", "--num-pos", "3")
    expected = "a number of blocks from 0 to 2, which is the number of tokens divided by window"
    assert ended.code == 2
    assert ended.err == f"attnsweep: num_pos: got 3, expected {expected}; lower num_pos, or lower window=5\n"


def test_any_byte_order_and_precision_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "heads.npy", np.eye(3, dtype=">f4")[None])
    assert _scored(tmp_path / "heads.npy")[0]["sigma_1"] == 0


@pytest.mark.parametrize("n", [1, 2, 3])
def test_matrices_too_small_for_many_blocks(n: int) -> None:
    for num_pos in range(n + 1):
        assert score_matrices(np.eye(n)[None], num_pos=num_pos).num_pos.tolist() == [num_pos]
    with pytest.raises(SpecError, match="num_pos"):
        score_matrices(np.eye(n)[None], num_pos=n + 1)


def test_shuffled_matrices_choose_among_the_same_blocks() -> None:
    heads = torch.rand(3, N, N, generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(-1)
    fixed = permutation_test(heads, lambda each: distances_to_blocks(each)[..., 2, 1])
    found = score_matrices(heads, window=3, num_pos=1)
    np.testing.assert_allclose(found.scores["sigma_3_z"], fixed.z.numpy())
    chosen = permutation_test(heads, lambda each: distances_to_blocks(each)[..., 2, 1:].amin(-1))
    np.testing.assert_allclose(score_matrices(heads, window=3).scores["sigma_3_z"], chosen.z.numpy())


def test_heads_are_scored_each_by_itself() -> None:
    planted = _planted()
    whole = score_matrices(planted)
    for head in range(len(planted)):
        alone = score_matrices(planted[head : head + 1])
        for name, score in whole.scores.items():
            np.testing.assert_allclose(alone.scores[name][0], score[head], atol=1e-12, err_msg=name)


def test_rows_of_any_sum_are_taken_on_request() -> None:
    with pytest.raises(UserError, match="eval mode"):
        score_matrices(_planted() / 0.9)
    assert score_matrices(_planted() / 0.9, any_row_sum=True).scores["sigma_1"][0] == pytest.approx(N / 9)


def _sparse() -> np.ndarray:
    """A band of half-width 1 but for two far entries; two blocks of four rows on their third column but for one."""
    band = (np.eye(N) + np.eye(N, k=1)) / 2
    band[-1, -1] = 1.0
    band[[2, 5]] = np.eye(N)[[9, 0]]
    blocks = np.eye(N)
    for start in (1, 7):
        blocks[start : start + 4] = np.eye(N)[start + 2]
    blocks[3] = np.eye(N)[11]
    return np.stack([band, blocks])


def test_free_entries_take_what_the_families_do_not_have(tmp_path: Path) -> None:
    np.save(tmp_path / "heads.npy", _sparse() / 0.9)
    given = (tmp_path / "heads.npy", "--any-row-sum", "--window", "4", "--num-pos", "2")
    band, blocks = _scored(*given, "--free-entries", "2")
    dropout = N * (1 / 0.9 - 1)  # What rows of sum 1/0.9 are away from any that sum to 1.
    assert band["sigma_2"] == pytest.approx(dropout + 4)
    assert band["sigma_2_plus_e"] == pytest.approx(dropout)
    assert blocks["sigma_3_any_column"] == pytest.approx(dropout + 2)
    assert blocks["sigma_3_any_column_plus_e"] == pytest.approx(dropout)
    assert blocks["sigma_3_plus_e"] > dropout + 1
    assert blocks["sigma_1_plus_e"] == pytest.approx(blocks["sigma_1"] - 4)
    assert "S3 any+E" in command("score-heads", *given, "--free-entries", "2").out
    assert "sigma_2_plus_e" not in _scored(*given)[0]


def test_free_entries_that_do_not_fit() -> None:
    with pytest.raises(SpecError, match=r"free_entries: got 10, expected a number from 0 to 9"):
        score_matrices(np.eye(3)[None], free_entries=10)
