"""`attnsweep prepare-corpus --unit`: every row is kept or counted, and any container gives the same text."""

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnsweep.orchestrator import cli
from attnsweep.workloads.gpt.text import END, UNK, read_text

DATA = Path(__file__).parents[4] / "shared/data/eng-ita.tsv.gz"
LINES = [f"Line {number}, says the text." for number in range(40)]

Prepare = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Prepare:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, dict[str, Any], str]:
        monkeypatch.setattr(sys, "argv", ["attnsweep", "prepare-corpus", *arguments, "--json"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        code = ended.value.code
        lines = captured.out.splitlines()
        return (code if isinstance(code, int) else 0), json.loads(lines[-1]) if lines else {}, captured.err

    return run


def test_every_row_is_kept_or_counted(prepare: Prepare) -> None:
    bad = [b"\xff", "a\ufffd".encode(), b"bell\x07", b"", b" ", LINES[0].encode(), b"x" * 61]
    Path("a.txt").write_bytes(b"\n".join([*(line.encode() for line in LINES), *bad]))
    _, report, shown = prepare("a.txt", "--out", "t.parquet", "--unit", "characters", "--longest", "60")
    assert report["dropped"] == {
        "wrong_number_of_fields": 0,
        "not_utf8": 1,
        "not_text": 2,
        "empty": 2,
        "too_long": 1,
        "duplicate": 1,
    }
    assert (report["kept"], report["rows"]) == (40, 47)
    text = read_text("t.parquet")
    assert report["digest"] == text.digest
    assert report["tokens"] == {"train": len(text.train), "held_out": len(text.held_out)}
    assert (text.train == END).sum() + (text.held_out == END).sum() == 40
    # Rare characters of the training part are unknown.
    assert (text.words[0], text.words[1], " " in text.words, "L" in text.words) == ("<end>", "<unk>", True, False)
    assert f"next     {report['next']}" in shown


@pytest.mark.slow
def test_any_container_gives_the_same_text(prepare: Prepare) -> None:
    Path("a.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(LINES).encode())
    Path("a.gz").write_bytes(gzip.compress("\n".join(LINES).encode()))
    Path("a.tsv").write_text("n\ttext\n" + "".join(f"{n}\t{line}\n" for n, line in enumerate(LINES)) + "one\n")
    pq.write_table(pa.table({"n": range(40), "text": LINES}), "a.parquet")
    files = [("a.txt",), ("a.gz",), ("a.tsv", "--column", "text"), ("a.parquet",)]
    reports = [prepare(*file, "--out", f"{n}.parquet", "--unit", "words")[1] for n, file in enumerate(files)]
    assert len({report["digest"] for report in reports}) == 1
    assert [report["dropped"]["wrong_number_of_fields"] for report in reports] == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--unit", "words", "--source", "a"],
            "--source: got 'a', expected no option --source with --unit; give --column",
        ),
        (["--column", "a"], "--column: got 'a', expected no option --column without --unit"),
        (["--unit", "words", "--column", "b"], "--column: got 'b', expected the name of a text column, out of"),
        (["--unit", "words", "--held-out", "1"], "--held-out: got 1.0, expected a share between 0 and 1"),
        (
            ["--unit", "words", "--held-out", "1e-9"],
            "--held-out: got 1e-09, expected a share that leaves some of the 40",
        ),
        (["--unit", "words", "--longest", "1"], "none of which can be used (too long 40)"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(prepare: Prepare, arguments: list[str], message: str) -> None:
    Path("a.txt").write_text("\n".join(LINES))
    code, _, shown = prepare("a.txt", "--out", "t.parquet", *arguments)
    assert code == 2
    assert message in " ".join(shown.split())
    assert not Path("t.parquet").exists()


def test_only_a_prepared_text_is_replaced(prepare: Prepare) -> None:
    Path("a.txt").write_text("\n".join(LINES))
    assert prepare("a.txt", "--out", "t.parquet", "--unit", "words")[0] == 0
    assert prepare("a.txt", "--out", "t.parquet", "--unit", "characters")[0] == 0
    code, _, shown = prepare("a.txt", "--out", "a.txt", "--unit", "words")
    assert code == 2
    assert "expected the path of a new file, or of a prepared text that may be overwritten" in " ".join(shown.split())


@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason="the data beside the checkout are absent")
def test_real_sentences(prepare: Prepare) -> None:
    _, report, _ = prepare(str(DATA), "--out", "t.parquet", "--unit", "words", "--column", "eng")
    assert report["rows"] == 18_031 == report["kept"] + sum(report["dropped"].values())
    assert 0.09 < report["tokens"]["held_out"] / sum(report["tokens"].values()) < 0.11
    text = read_text("t.parquet")
    assert report["unknown_share"]["train"] == pytest.approx(
        (text.train == UNK).sum() / (text.train != END).sum(), rel=1e-12
    )
