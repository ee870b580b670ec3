"""`attnsweep prepare-corpus`: bad rows are counted, parts share no sentence, nothing is half done."""

import gzip
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnsweep.workloads.gpt.text import END, read_text
from attnsweep.workloads.translation.corpus import EOS, SPECIALS, TRAIN, UNK, VALID, Corpus, Side, read_corpus
from tests.orchestrator.commands import Ended, command

LINES = [f"Line {number}, says the text." for number in range(40)]
HEADER = b"eng\tita\tsource\n"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def prepare(*arguments: str) -> Ended:
    return command("prepare-corpus", *arguments)


def report_of(*arguments: str) -> dict[str, Any]:
    ended = prepare(*arguments, "--json")
    assert ended.code == 0, ended.err
    return ended.json


def _many(n: int = 60) -> list[tuple[str, str]]:
    return [(f"The number {i}.", f"Il numero {i}.") for i in range(n)]


def _tsv(pairs: list[tuple[str, str]]) -> bytes:
    return HEADER + "".join(f"{source}\t{target}\tx\n" for source, target in pairs).encode()


def _sentences(side: Side) -> list[str]:
    rows = zip(side.tokens, side.lengths, strict=True)
    assert all(tokens[length - 1] == EOS for tokens, length in zip(side.tokens, side.lengths, strict=True))
    return [" ".join(side.words[word] for word in tokens[: length - 1]) for tokens, length in rows]


def _part_of(corpus: Corpus) -> dict[str, int]:
    """The part of each source sentence; every word must be in the vocabulary."""
    parts = dict(zip(_sentences(corpus.source), corpus.part.tolist(), strict=True))
    assert not any(SPECIALS[UNK] in sentence for sentence in parts)
    return parts


BAD = {
    "wrong_number_of_fields": [b"one\n", b"\n", b"a\tb\tc\td\n", b"\xff\t1\n", b"\r\n"],
    "not_text": [b"x\xff\ty\tz\n", b"x\t\xed\xa0\x80\tz\n", b"nul\x00\tb\tc\n", b"a\tbell\x07s\tc\n"],
    "empty": [b"\tb\tc\n", "a\t\u00a0 \tc\n".encode()],
    "too_long": [b"w " * 25 + b"\tb\tc\n", b"a\t" + b"w " * 25 + b"\tc\n"],
    "duplicate": [b"the  number 1 .\til numero 1.\tagain\n"],
}


def test_every_row_is_kept_or_counted() -> None:
    whole = _tsv([*_many(), ('He said "hi.', 'Disse "ciao.')]).splitlines(keepends=True)[1:]
    bad = [row for rows in BAD.values() for row in rows]
    last = b"w " * 24 + b"\tb\tno line end"
    Path("bad.tsv").write_bytes(b"\xef\xbb\xbf" + b"".join([HEADER, *bad, *whole, *bad[:-1], last]))
    report = report_of("bad.tsv", "--out", "c.parquet", "--min-frequency", "1")
    assert report["dropped"] == {name: 2 * len(rows) - (name == "duplicate") for name, rows in BAD.items()} | {
        # Of duplicates the first is kept.
        "duplicate": 1
    }
    assert report["kept"] == 62
    assert report["rows"] == report["kept"] + sum(report["dropped"].values())
    corpus = read_corpus("c.parquet")
    assert len(corpus.part) == 62
    assert corpus.source.lengths.max() == 25
    assert report["digest"] == corpus.digest


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_the_same_text_gives_the_same_corpus_from_any_container(end: bytes) -> None:
    pairs = _many()
    Path("a.tsv").write_bytes(_tsv(pairs).replace(b"\n", end))
    Path("a.gz").write_bytes(gzip.compress(_tsv(pairs)))
    source, target = (list(side) for side in zip(*pairs, strict=True))
    structs = [{"en": first, "it": second} for first, second in pairs]
    pq.write_table(pa.table({"id": [str(i) for i in range(60)], "translation": structs}), "books.parquet")
    pq.write_table(pa.table({"n": range(60), "en": pa.array(source).dictionary_encode(), "it": target}), "flat.parquet")
    digests = {
        report_of(file, "--out", f"{file}.parquet")["digest"]
        for file in ("a.tsv", "a.gz", "books.parquet", "flat.parquet")
    }
    assert len(digests) == 1


def test_a_source_sentence_is_in_one_part_wherever_its_rows_are() -> None:
    sources = [" ".join(f"{number:03}") for number in range(300)]
    pairs = [(f"No {source}", f"{kind} {source}") for source in sources for kind in ("una", "due", "tre")]
    pairs += [(f"NO   {source}", f"quattro {source}") for source in sources]
    Path("a.tsv").write_bytes(_tsv(pairs))
    Path("b.tsv").write_bytes(_tsv(pairs[::-1] + [(f"Other {source}", "x") for source in sources]))
    for name in "ab":
        assert prepare(f"{name}.tsv", "--out", f"{name}.parquet", "--held-out", "0.3").code == 0
    corpus = read_corpus("a.parquet")
    parts = _part_of(corpus)
    assert len(parts) == 300
    assert [parts[sentence] for sentence in _sentences(corpus.source)] == corpus.part.tolist()
    shares = np.bincount(corpus.part, minlength=3) / len(corpus.part)
    assert np.abs(shares - [0.7, 0.15, 0.15]).max() < 0.06
    again = _part_of(read_corpus("b.parquet"))
    assert {sentence: again[sentence] for sentence in parts} == parts
    assert prepare("a.tsv", "--out", "a.parquet", "--held-out", "0.3", "--seed", "1").code == 0
    assert _part_of(read_corpus("a.parquet")) != parts


def test_words_are_numbered_by_falling_frequency_in_the_training_part_alone() -> None:
    rng = np.random.default_rng(0)
    words = [f"w{number}" for number in range(300)]
    pairs = [(" ".join(words[w] for w in rng.zipf(1.3, 5) % 300), f"riga {row}") for row in range(400)]
    Path("a.tsv").write_bytes(_tsv(pairs))
    report = report_of("a.tsv", "--out", "a.parquet", "--min-frequency", "3")
    side = (corpus := read_corpus("a.parquet")).source
    text = {part: " ".join(np.array(_sentences(side))[corpus.part == part]).split() for part in (TRAIN, VALID)}
    counts = {word: text[TRAIN].count(word) for word in side.words[len(SPECIALS) :]}
    assert min(counts.values()) == 3
    # Ties in the order of the words' bytes: the same numbers in every run.
    assert list(counts) == sorted(counts, key=lambda word: (-counts[word], word))
    share = text[VALID].count(SPECIALS[UNK]) / len(text[VALID])
    assert report["unknown_share"]["valid"]["source"] == pytest.approx(share) != 0


def test_text_is_normalized_and_markers_in_it_are_text() -> None:
    odd = ("E\u0301 <eos> <pad>, don't ...", "È [red]Ciao")
    Path("a.tsv").write_bytes(_tsv([*_many(), odd]))
    for flag, source, target in (("--lowercase", "é", "è [ red ] ciao"), ("--no-lowercase", "É", "È [ red ] Ciao")):
        # The seed is one that puts this sentence into the training part; elsewhere its words may be unknown.
        ended = prepare("a.tsv", "--out", "a.parquet", "--min-frequency", "1", flag, "--seed", "1")
        assert ended.code == 0
        corpus = read_corpus("a.parquet")
        assert _sentences(corpus.source)[-1] == f"{source} < eos > < pad >, don ' t ..."
        assert _sentences(corpus.target)[-1] == target


PAIRS = _tsv(_many())


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("no.tsv", None),
        ("a.gz", gzip.compress(PAIRS, mtime=0)[:-20]),
        ("a.parquet", b"PAR1 and no more"),
        ("a.csv", b"a,b\nx,y\n"),
        ("empty", b""),
        ("a.tsv", b"a\tb\nx\n\n"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(file: str, content: bytes | None) -> None:
    _is_refused(file, content, [], "FILE")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--longest", "1"], "FILE"),
        (["--source", "deu"], "--source"),
        (["--source", "ita", "--target", "ita"], "--target"),
        (["--held-out", "1e-9"], "--held-out"),
        (["--min-frequency", "61"], "--min-frequency"),
        (["--out", "a.tsv"], "--out"),
        (["--unit", "words", "--source", "a"], "--source"),
        (["--column", "a"], "--column"),
        (["--unit", "words", "--min-frequency", str(10**25)], "Invalid value for '--min-frequency'"),
    ],
)
def test_a_mistake_in_an_option_is_one_line(flags: list[str], message: str) -> None:
    _is_refused("a.tsv", PAIRS, flags, message)


def _is_refused(file: str, content: bytes | None, flags: list[str], message: str) -> None:
    if content is not None:
        Path(file).write_bytes(content)
    before = {path: path.read_bytes() for path in Path().iterdir()}
    ended = prepare(file, "--out", "c.parquet", *flags)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith(f"attnsweep: {message}")
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_every_row_of_a_text_is_kept_or_counted() -> None:
    bad = [b"\xff", "a\ufffd".encode(), b"bell\x07", b"", b" ", LINES[0].encode(), b"x" * 61]
    Path("a.txt").write_bytes(b"\n".join([*(line.encode() for line in LINES), *bad]))
    ended = prepare("a.txt", "--out", "t.parquet", "--unit", "characters", "--longest", "60", "--json")
    report = ended.json
    assert list(report["dropped"].values()) == [0, 3, 2, 1, 1]
    assert (report["kept"], report["rows"]) == (40, 47)
    text = read_text("t.parquet")
    assert report["digest"] == text.digest
    assert report["tokens"] == {"train": len(text.train), "held_out": len(text.held_out)}
    assert (text.train == END).sum() + (text.held_out == END).sum() == 40
    # Rare characters of the training part are unknown.
    assert (text.words[0], text.words[1], " " in text.words, "L" in text.words) == ("<end>", "<unk>", True, False)
    assert report["next"] in ended.err


def test_without_tokenizers_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    ended = prepare("pairs.tsv", "--out", "pairs.parquet")
    assert (ended.code, "attnsweep[corpora]" in ended.err) == (2, True)
