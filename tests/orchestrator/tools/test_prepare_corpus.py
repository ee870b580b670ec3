"""`attnsweep prepare-corpus`: bad rows are counted, parts share no sentence, nothing is half done."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnsweep.workloads.gpt.text import END, read_text
from attnsweep.workloads.gpt.text import UNK as TEXT_UNK
from attnsweep.workloads.translation.corpus import EOS, SPECIALS, TEST, TRAIN, UNK, VALID, Corpus, Side, read_corpus
from tests.orchestrator.commands import Ended, command

DATA = Path(__file__).parents[4] / "shared/data"
TATOEBA = DATA / "eng-ita.tsv.gz"
LINES = [f"Line {number}, says the text." for number in range(40)]
HEADER = b"eng\tita\tsource\n"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def prepare(*arguments: str) -> Ended:
    return command("prepare-corpus", *arguments)


def prepare_text(*arguments: str) -> Ended:
    return prepare(*arguments, "--json")


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
    "not_utf8": [b"x\xff\ty\tz\n", b"x\t\xed\xa0\x80\tz\n"],
    "not_text": [b"nul\x00\tb\tc\n", b"a\tbell\x07s\tc\n", "a\ufffd\tb\tc\n".encode()],
    "empty_side": [b"\tb\tc\n", "a\t\u00a0 \tc\n".encode()],
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
    raw = pa.array([each.encode() for each in target])
    pq.write_table(pa.table({"n": range(60), "en": pa.array(source).dictionary_encode(), "it": raw}), "flat.parquet")
    digests = {
        report_of(file, "--out", f"{file}.parquet")["digest"]
        for file in ("a.tsv", "a.gz", "books.parquet", "flat.parquet")
    }
    assert len(digests) == 1


def test_rows_of_parquet_that_hold_nothing_are_counted() -> None:
    structs = [{"en": first, "it": second} for first, second in _many()]
    pq.write_table(pa.table({"translation": [*structs, None, {"en": "x", "it": None}]}), "books.parquet")
    report = report_of("books.parquet", "--out", "c.parquet")
    assert (report["rows"], report["kept"], report["dropped"]["empty_side"]) == (62, 60, 2)

    column = pa.array([*(first.encode() for first, _ in _many()), b"\xff"])
    pq.write_table(pa.table({"en": column, "it": column}), "flat.parquet")
    report = report_of("flat.parquet", "--out", "d.parquet")
    assert (report["rows"], report["kept"], report["dropped"]["not_utf8"]) == (61, 60, 1)


def test_columns_are_chosen_by_name() -> None:
    Path("a.tsv").write_bytes(_tsv(_many()))
    report = report_of("a.tsv", "--out", "c.parquet", "--source", "ita")
    assert (report["origin"]["source"], report["origin"]["target"]) == ("ita", "eng")
    assert "il" in read_corpus("c.parquet").source.words


def test_neither_a_byte_order_mark_nor_a_line_end_is_part_of_a_name() -> None:
    Path("a.tsv").write_bytes(
        b"\xef\xbb\xbf" + _tsv(_many()).replace(b"\tx\n", b"\r\n").replace(b"\tsource\n", b"\r\n")
    )
    report = report_of("a.tsv", "--out", "c.parquet", "--source", "eng", "--target", "ita")
    assert (report["origin"]["source"], report["origin"]["target"]) == ("eng", "ita")
    assert (report["rows"], report["kept"]) == (60, 60)


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


def test_the_report_is_printed_with_the_next_command() -> None:
    Path("a.tsv").write_bytes(_tsv(_many()).replace(b"ita", b"[b]ita", 1))
    ended = prepare("a.tsv", "--out", "a corpus.parquet")
    assert (ended.code, ended.out) == (0, "")
    assert "[b]ita" in ended.err
    assert "attnsweep run head_roles --set corpus='a corpus.parquet'" in ended.err
    printed = report_of("a.tsv", "--out", "a corpus.parquet")
    metadata = pq.read_schema("a corpus.parquet").metadata
    assert json.loads(metadata[b"report"])["pairs"] == printed["pairs"]
    assert json.loads(metadata[b"origin"])["file"] == "a.tsv"
    assert pq.read_table("a corpus.parquet")["part"].to_pylist().count("train") == printed["pairs"]["train"]


ACCEPTED = "expected parallel sentences: a TSV with a header line (or its .gz), or Parquet"
PAIRS = _tsv(_many())
UNUSABLE = "none of which can be used"


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("no.tsv", None, f"FILE: got 'no.tsv', {ACCEPTED}; check the path (No such file or directory)"),
        (".", None, f"FILE: got '.', {ACCEPTED}; check the path (Is a directory)"),
        ("a.gz", gzip.compress(PAIRS, mtime=0)[:-20], f"FILE: got 'a.gz', {ACCEPTED}; check the path (Compressed"),
        ("a.parquet", b"PAR1 and no more", f"FILE: got 'a.parquet', {ACCEPTED}; check the path (Parquet magic"),
        ("a.tsv", b"\xe0\tb\nx\ty\n", f"FILE: got 'a.tsv', {ACCEPTED}; save the file in UTF-8 (the error in its head"),
        ("a.csv", b"a,b\nx,y\n", "FILE: got \"the file a.csv, whose text columns are 'a,b'\", expected a file with"),
        (
            "empty",
            b"",
            "FILE: got \"the file empty, whose text columns are ''\", expected a file with at least two columns",
        ),
        ("a.tsv", b"a\tb\nx\n\n", f"FILE: got 'a file of 2 rows, {UNUSABLE} (wrong number of fields 2)'"),
        ("a.tsv", b"a\tb", f"FILE: got 'a file of 0 rows, {UNUSABLE}', expected pairs of sentences"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(file: str, content: bytes | None, message: str) -> None:
    _is_refused(file, content, [], message)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--longest", "1"], f"FILE: got 'a file of 60 rows, {UNUSABLE} (too long 60)'"),
        (["--source", "deu"], "--source: got 'deu', expected the name of a column, out of eng, "),
        (["--source", "ita", "--target", "ita"], "--target: got 'ita', expected another column than that of --source"),
        (["--held-out", "1"], "--held-out: got 1.0, expected the share of the rows that are not for"),
        (["--held-out", "nan"], "--held-out: got nan, expected the share of the rows that are not for"),
        (
            ["--held-out", "1e-9"],
            "--held-out: got 1e-09, expected a share of the rows with which training, validation and test each"
            " get sentence pairs; with this share they get: train 60, valid 0, test 0;",
        ),
        (["--min-frequency", "61"], "--min-frequency: got 61, expected a frequency that at least one word"),
        (["--min-frequency", "0"], "Invalid value for '--min-frequency'"),
        (["--out", "a.tsv"], "--out: got 'a.tsv', expected the path of a new file, or of a prepared corpus"),
        (["--out", "no/c"], "--out: got 'no/c', expected a file that can be written; choose another path (the folder"),
        (["--out", "."], "--out: got '.', expected a file that can be written; choose another path ("),
        (["--out", "/proc/c"], "--out: got '/proc/c', expected a file"),
    ],
)
def test_a_mistake_in_an_option_is_one_line(flags: list[str], message: str) -> None:
    _is_refused("a.tsv", PAIRS, flags, message)


def test_a_column_that_is_there_twice_is_refused() -> None:
    _is_refused(
        "a.tsv", b"a\ta\tb\n", ["--target", "a"], "--target: got 'a', expected the name of a column, out of a, a,"
    )


def _is_refused(file: str, content: bytes | None, flags: list[str], message: str) -> None:
    if content is not None:
        Path(file).write_bytes(content)
    before = {path: path.read_bytes() for path in Path().iterdir()}
    ended = prepare(file, "--out", "c.parquet", *flags)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith(f"attnsweep: {message}")
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_a_prepared_corpus_is_no_raw_text_and_may_be_replaced() -> None:
    Path("a.tsv").write_bytes(_tsv(_many()))
    assert prepare("a.tsv", "--out", "c.parquet").code == 0
    first = read_corpus("c.parquet").digest
    ended = prepare("c.parquet", "--out", "d.parquet")
    assert ended.code == 2
    assert "give the text from which this file was made (columns source, target, part)" in ended.err
    assert prepare("a.tsv", "--out", "c.parquet", "--no-lowercase").code == 0
    assert read_corpus("c.parquet").digest != first


def test_a_write_that_fails_leaves_the_corpus_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_tatoeba(name: str, n_pairs: int) -> None:
    file = DATA / f"{name}.tsv.gz"
    if not file.is_file():
        pytest.skip(f"the sentences of Tatoeba are not here ({file})")
    report = report_of(str(file), "--out", "c.parquet")
    assert (report["rows"], report["kept"]) == (n_pairs, n_pairs)
    corpus = read_corpus("c.parquet")
    assert corpus.digest == report["digest"]
    held_out = (corpus.part != TRAIN).mean()
    assert 0.08 < held_out < 0.12
    seen = {tuple(tokens) for tokens in corpus.source.tokens[corpus.part == TRAIN]}
    known = ~(corpus.source.tokens == UNK).any(axis=1)
    assert not any(tuple(tokens) in seen for tokens in corpus.source.tokens[(corpus.part != TRAIN) & known])
    assert all(0 < share < 0.2 for part in ("valid", "test") for share in report["unknown_share"][part].values())


def test_every_row_of_a_text_is_kept_or_counted() -> None:
    bad = [b"\xff", "a\ufffd".encode(), b"bell\x07", b"", b" ", LINES[0].encode(), b"x" * 61]
    Path("a.txt").write_bytes(b"\n".join([*(line.encode() for line in LINES), *bad]))
    ended = prepare_text("a.txt", "--out", "t.parquet", "--unit", "characters", "--longest", "60")
    report = ended.json
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
    assert f"next     {report['next']}" in ended.err


@pytest.mark.slow
def test_any_container_gives_the_same_text() -> None:
    Path("a.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(LINES).encode())
    Path("a.gz").write_bytes(gzip.compress("\n".join(LINES).encode()))
    Path("a.tsv").write_text("n\ttext\n" + "".join(f"{n}\t{line}\n" for n, line in enumerate(LINES)) + "one\n")
    pq.write_table(pa.table({"n": range(40), "text": LINES}), "a.parquet")
    files = [("a.txt",), ("a.gz",), ("a.tsv", "--column", "text"), ("a.parquet",)]
    reports = [prepare_text(*file, "--out", f"{n}.parquet", "--unit", "words").json for n, file in enumerate(files)]
    assert len({report["digest"] for report in reports}) == 1
    assert [report["dropped"]["wrong_number_of_fields"] for report in reports] == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--unit", "words", "--source", "a"],
            "--source: got 'a', expected no option --source, because with --unit a single column is read; give",
        ),
        (["--column", "a"], "--column: got 'a', expected no option --column, because without --unit two columns"),
        (["--unit", "words", "--column", "b"], "--column: got 'b', expected the name of a text column, out of"),
        (
            ["--unit", "words", "--held-out", "1"],
            "--held-out: got 1.0, expected the share of the rows that are not for",
        ),
        (
            ["--unit", "words", "--held-out", "1e-9"],
            "--held-out: got 1e-09, expected a share with which some of the 40",
        ),
        (["--unit", "words", "--longest", "1"], "none of which can be used (too long 40)"),
        (["--unit", "words", "--min-frequency", str(10**25)], "expected a whole number from 1 to 2147483647"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(arguments: list[str], message: str) -> None:
    Path("a.txt").write_text("\n".join(LINES))
    ended = prepare_text("a.txt", "--out", "t.parquet", *arguments)
    assert (ended.code, message in " ".join(ended.err.split())) == (2, True)
    assert not Path("t.parquet").exists()


def test_only_a_prepared_text_is_replaced() -> None:
    Path("a.txt").write_text("\n".join(LINES))
    assert prepare_text("a.txt", "--out", "t.parquet", "--unit", "words").code == 0
    assert prepare_text("a.txt", "--out", "t.parquet", "--unit", "characters").code == 0
    ended = prepare_text("a.txt", "--out", "a.txt", "--unit", "words")
    assert ended.code == 2
    assert "expected the path of a new file, or of a prepared text that may be overwritten" in ended.err


@pytest.mark.slow
@pytest.mark.skipif(not TATOEBA.exists(), reason="the data beside the checkout are absent")
def test_sentences_of_tatoeba_as_a_text() -> None:
    report = prepare_text(str(TATOEBA), "--out", "t.parquet", "--unit", "words", "--column", "eng").json
    assert report["rows"] == 18_031 == report["kept"] + sum(report["dropped"].values())
    assert 0.09 < report["tokens"]["held_out"] / sum(report["tokens"].values()) < 0.11
    text = read_text("t.parquet")
    assert report["unknown_share"]["train"] == pytest.approx(
        (text.train == TEXT_UNK).sum() / (text.train != END).sum(), rel=1e-12
    )
