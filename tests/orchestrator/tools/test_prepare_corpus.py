"""`attnsweep prepare-corpus`: bad rows are counted, parts share no sentence, nothing is half done."""

import gzip
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnsweep.orchestrator import cli
from attnsweep.workloads.translation.corpus import EOS, SPECIALS, TEST, TRAIN, UNK, VALID, Corpus, Side, read_corpus

DATA = Path(__file__).parents[4] / "shared/data"
HEADER = b"eng\tita\tsource\n"


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return found


Prepare = Callable[..., Ended]


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Prepare:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["attnsweep", "prepare-corpus", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        code = ended.value.code
        return Ended(code if isinstance(code, int) else 0, captured.out, captured.err)

    return run


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
    "not_utf8": [b"x\xff\ty\tz\n", b"x\t\xed\xa0\x80\tz\n"],
    "not_text": [b"nul\x00\tb\tc\n", b"a\tbell\x07s\tc\n", "a\ufffd\tb\tc\n".encode()],
    "empty_side": [b"\tb\tc\n", "a\t\u00a0 \tc\n".encode()],
    "too_long": [b"w " * 25 + b"\tb\tc\n", b"a\t" + b"w " * 25 + b"\tc\n"],
    "duplicate": [b"the  number 1 .\til numero 1.\tagain\n"],
}


def test_every_row_is_kept_or_counted(prepare: Prepare) -> None:
    whole = _tsv([*_many(), ('He said "hi.', 'Disse "ciao.')]).splitlines(keepends=True)[1:]
    bad = [row for rows in BAD.values() for row in rows]
    last = b"w " * 24 + b"\tb\tno line end"
    Path("bad.tsv").write_bytes(b"\xef\xbb\xbf" + b"".join([HEADER, *bad, *whole, *bad[:-1], last]))
    report = prepare("bad.tsv", "--out", "c.parquet", "--min-frequency", "1", "--json").report
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
def test_the_same_text_gives_the_same_corpus_from_any_container(prepare: Prepare, end: bytes) -> None:
    pairs = _many()
    Path("a.tsv").write_bytes(_tsv(pairs).replace(b"\n", end))
    Path("a.gz").write_bytes(gzip.compress(_tsv(pairs)))
    source, target = (list(side) for side in zip(*pairs, strict=True))
    structs = [{"en": first, "it": second} for first, second in pairs]
    pq.write_table(pa.table({"id": [str(i) for i in range(60)], "translation": structs}), "books.parquet")
    raw = pa.array([each.encode() for each in target])
    pq.write_table(pa.table({"n": range(60), "en": pa.array(source).dictionary_encode(), "it": raw}), "flat.parquet")
    digests = {
        prepare(file, "--out", f"{file}.parquet", "--json").report["digest"]
        for file in ("a.tsv", "a.gz", "books.parquet", "flat.parquet")
    }
    assert len(digests) == 1


def test_rows_of_parquet_that_hold_nothing_are_counted(prepare: Prepare) -> None:
    structs = [{"en": first, "it": second} for first, second in _many()]
    pq.write_table(pa.table({"translation": [*structs, None, {"en": "x", "it": None}]}), "books.parquet")
    report = prepare("books.parquet", "--out", "c.parquet", "--json").report
    assert (report["rows"], report["kept"], report["dropped"]["empty_side"]) == (62, 60, 2)

    column = pa.array([*(first.encode() for first, _ in _many()), b"\xff"])
    pq.write_table(pa.table({"en": column, "it": column}), "flat.parquet")
    report = prepare("flat.parquet", "--out", "d.parquet", "--json").report
    assert (report["rows"], report["kept"], report["dropped"]["not_utf8"]) == (61, 60, 1)


def test_columns_are_chosen_by_name(prepare: Prepare) -> None:
    Path("a.tsv").write_bytes(_tsv(_many()))
    report = prepare("a.tsv", "--out", "c.parquet", "--source", "ita", "--json").report
    assert (report["origin"]["source"], report["origin"]["target"]) == ("ita", "eng")
    assert "il" in read_corpus("c.parquet").source.words


def test_neither_a_byte_order_mark_nor_a_line_end_is_part_of_a_name(prepare: Prepare) -> None:
    Path("a.tsv").write_bytes(
        b"\xef\xbb\xbf" + _tsv(_many()).replace(b"\tx\n", b"\r\n").replace(b"\tsource\n", b"\r\n")
    )
    report = prepare("a.tsv", "--out", "c.parquet", "--source", "eng", "--target", "ita", "--json").report
    assert (report["origin"]["source"], report["origin"]["target"]) == ("eng", "ita")
    assert (report["rows"], report["kept"]) == (60, 60)


def test_a_source_sentence_is_in_one_part_wherever_its_rows_are(prepare: Prepare) -> None:
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


def test_words_are_numbered_by_falling_frequency_in_the_training_part_alone(prepare: Prepare) -> None:
    rng = np.random.default_rng(0)
    words = [f"w{number}" for number in range(300)]
    pairs = [(" ".join(words[w] for w in rng.zipf(1.3, 5) % 300), f"riga {row}") for row in range(400)]
    Path("a.tsv").write_bytes(_tsv(pairs))
    report = prepare("a.tsv", "--out", "a.parquet", "--min-frequency", "3", "--json").report
    side = (corpus := read_corpus("a.parquet")).source
    text = {part: " ".join(np.array(_sentences(side))[corpus.part == part]).split() for part in (TRAIN, VALID, TEST)}
    counts = {word: text[TRAIN].count(word) for word in side.words[len(SPECIALS) :]}
    assert min(counts.values()) == 3
    # Ties in the order of the words' bytes: the same numbers in every run.
    assert list(counts) == sorted(counts, key=lambda word: (-counts[word], word))
    assert side.words[: len(SPECIALS)] == SPECIALS
    for name, part in (("train", TRAIN), ("valid", VALID), ("test", TEST)):
        share = text[part].count(SPECIALS[UNK]) / len(text[part])
        assert report["unknown_share"][name]["source"] == pytest.approx(share)
    assert report["unknown_share"]["valid"]["source"] > 0
    assert report["words"]["source"] == len(side.words)


def test_text_is_normalized_and_markers_in_it_are_text(prepare: Prepare) -> None:
    odd = ("E\u0301 <eos> <pad>, don't ...", "È [red]Ciao")
    Path("a.tsv").write_bytes(_tsv([*_many(), odd]))
    for flag, source, target in (("--lowercase", "é", "è [ red ] ciao"), ("--no-lowercase", "É", "È [ red ] Ciao")):
        # The seed is one that puts this sentence into the training part; elsewhere its words may be unknown.
        ended = prepare("a.tsv", "--out", "a.parquet", "--min-frequency", "1", flag, "--seed", "1")
        assert ended.code == 0
        corpus = read_corpus("a.parquet")
        assert _sentences(corpus.source)[-1] == f"{source} < eos > < pad >, don ' t ..."
        assert _sentences(corpus.target)[-1] == target


def test_the_report_is_printed_with_the_next_command(prepare: Prepare) -> None:
    Path("a.tsv").write_bytes(_tsv(_many()).replace(b"ita", b"[b]ita", 1))
    ended = prepare("a.tsv", "--out", "a corpus.parquet")
    assert (ended.code, ended.out) == (0, "")
    assert "[b]ita" in ended.err
    assert "attnsweep run head_roles --set corpus='a corpus.parquet'" in ended.err
    printed = prepare("a.tsv", "--out", "a corpus.parquet", "--json").report
    metadata = pq.read_schema("a corpus.parquet").metadata
    assert json.loads(metadata[b"report"])["pairs"] == printed["pairs"]
    assert json.loads(metadata[b"origin"])["file"] == "a.tsv"
    assert pq.read_table("a corpus.parquet")["part"].to_pylist().count("train") == printed["pairs"]["train"]


ACCEPTED = "expected parallel sentences: a TSV with a header line (or its .gz), or Parquet"


@pytest.mark.parametrize(
    ("file", "content", "flags", "message"),
    [
        ("no.tsv", None, [], f"FILE: got 'no.tsv', {ACCEPTED}; check the path (No such file or directory)"),
        (".", None, [], f"FILE: got '.', {ACCEPTED}; check the path (Is a directory)"),
        (
            "a.gz",
            gzip.compress(_tsv(_many()), mtime=0)[:-20],
            [],
            f"FILE: got 'a.gz', {ACCEPTED}; check the path (Compressed",
        ),
        ("a.parquet", b"PAR1 and no more", [], f"FILE: got 'a.parquet', {ACCEPTED}; check the path (Parquet magic"),
        (
            "a.tsv",
            b"\xe0\tb\nx\ty\n",
            [],
            f"FILE: got 'a.tsv', {ACCEPTED}; save the file in UTF-8 (the error in its header line",
        ),
        (
            "a.csv",
            b"a,b\nx,y\n",
            [],
            f"FILE: got \"the file a.csv, whose text columns are 'a,b'\", {ACCEPTED} with two columns of text;",
        ),
        (
            "empty",
            b"",
            [],
            f"FILE: got \"the file empty, whose text columns are ''\", {ACCEPTED} with two columns of text;",
        ),
        (
            "a.tsv",
            b"a\tb\nx\n\n",
            [],
            "FILE: got 'a file of 2 rows, none of which can be used (wrong number of fields 2)'",
        ),
        ("a.tsv", b"a\tb", [], "FILE: got 'a file of 0 rows, none of which can be used', expected pairs of sentences"),
        (
            "a.tsv",
            _tsv(_many()),
            ["--longest", "1"],
            "FILE: got 'a file of 60 rows, none of which can be used (too long 60)'",
        ),
        (
            "a.tsv",
            _tsv(_many()),
            ["--source", "deu"],
            "--source: got 'deu', expected the name of a column, out of eng, ",
        ),
        ("a.tsv", b"a\ta\tb\n", ["--target", "a"], "--target: got 'a', expected the name of a column, out of a, a, b;"),
        (
            "a.tsv",
            _tsv(_many()),
            ["--source", "ita", "--target", "ita"],
            "--target: got 'ita', expected another column than that of --source",
        ),
        ("a.tsv", _tsv(_many()), ["--held-out", "1"], "--held-out: got 1.0, expected a share between 0 and 1"),
        ("a.tsv", _tsv(_many()), ["--held-out", "nan"], "--held-out: got nan, expected a share between 0 and 1"),
        (
            "a.tsv",
            _tsv(_many()),
            ["--held-out", "1e-9"],
            "--held-out: got 1e-09, expected a share that leaves sentence pairs in every part,"
            " unlike this one, which gives train 60, valid 0, test 0;",
        ),
        (
            "a.tsv",
            _tsv(_many()),
            ["--min-frequency", "61"],
            "--min-frequency: got 61, expected a frequency that at least one word",
        ),
        ("a.tsv", _tsv(_many()), ["--min-frequency", "0"], "Invalid value for '--min-frequency'"),
        (
            "a.tsv",
            _tsv(_many()),
            ["--out", "a.tsv"],
            "--out: got 'a.tsv', expected the path of a new file, or of a prepared corpus",
        ),
        (
            "a.tsv",
            _tsv(_many()),
            ["--out", "no/c.parquet"],
            "--out: got 'no/c.parquet', expected a file that can be written; choose another path (the folder",
        ),
        (
            "a.tsv",
            _tsv(_many()),
            ["--out", "."],
            "--out: got '.', expected a file that can be written; choose another path (",
        ),
        ("a.tsv", _tsv(_many()), ["--out", "/proc/c"], "--out: got '/proc/c', expected a file"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    file: str, content: bytes | None, flags: list[str], message: str, prepare: Prepare, tmp_path: Path
) -> None:
    if content is not None:
        Path(file).write_bytes(content)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    ended = prepare(file, "--out", "c.parquet", *flags)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"attnsweep: {message}")
    assert ended.err.count("\n") == 1
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_prepared_corpus_is_no_raw_text_and_may_be_replaced(prepare: Prepare) -> None:
    Path("a.tsv").write_bytes(_tsv(_many()))
    assert prepare("a.tsv", "--out", "c.parquet").code == 0
    first = read_corpus("c.parquet").digest
    ended = prepare("c.parquet", "--out", "d.parquet")
    assert ended.code == 2
    assert "give the text from which this file was made (columns source, target, part)" in ended.err
    assert prepare("a.tsv", "--out", "c.parquet", "--no-lowercase").code == 0
    assert read_corpus("c.parquet").digest != first


def test_a_write_that_fails_leaves_the_corpus_that_was_there(
    prepare: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("a.tsv").write_bytes(_tsv(_many()))
    assert prepare("a.tsv", "--out", "c.parquet").code == 0
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    def torn(table: pa.Table, path: Path, **how: object) -> None:
        path.write_bytes(b"PAR1")
        raise OSError(28, "No space left on device")

    def unsynced(path: Path) -> None:
        raise OSError(5, "Input/output error")

    for name, failing, said in (
        ("storage.output_file.sync", unsynced, "got 'Input/output error', expected a file that can be written"),
        ("tools.prepare_corpus.rows.pq.write_table", torn, "choose another path (No space left on device)"),
    ):
        monkeypatch.setattr(f"attnsweep.orchestrator.{name}", failing)
        ended = prepare("a.tsv", "--out", "c.parquet", "--no-lowercase")
        assert ended.code == 1
        assert said in ended.err
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.scale
@pytest.mark.slow
@pytest.mark.parametrize(("name", "n_pairs"), [("eng-ita", 18031), ("eng-vie", 2339)])
def test_tatoeba(name: str, n_pairs: int, prepare: Prepare) -> None:
    file = DATA / f"{name}.tsv.gz"
    if not file.is_file():
        pytest.skip(f"the sentences of Tatoeba are not here ({file})")
    report = prepare(str(file), "--out", "c.parquet", "--json").report
    assert (report["rows"], report["kept"]) == (n_pairs, n_pairs)
    corpus = read_corpus("c.parquet")
    assert corpus.digest == report["digest"]
    held_out = (corpus.part != TRAIN).mean()
    assert 0.08 < held_out < 0.12
    seen = {tuple(tokens) for tokens in corpus.source.tokens[corpus.part == TRAIN]}
    known = ~(corpus.source.tokens == UNK).any(axis=1)
    assert not any(tuple(tokens) in seen for tokens in corpus.source.tokens[(corpus.part != TRAIN) & known])
    assert all(0 < share < 0.2 for part in ("valid", "test") for share in report["unknown_share"][part].values())
