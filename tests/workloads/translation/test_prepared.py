"""The file of a prepared corpus: it is read back unchanged, and other files are refused."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnsweep.workloads.errors import UserError
from attnsweep.workloads.prepared_files import digest_of
from attnsweep.workloads.translation.corpus import (
    CORPUS_FILE,
    EOS,
    PAD,
    SPECIALS,
    TEST,
    TRAIN,
    VALID,
    make_corpus,
    make_side,
    read_corpus,
)
from tests.refusals import refused

WORDS = {"source": [*SPECIALS, "the", "cat"], "target": [*SPECIALS, "il", "gatto", "."]}
SOURCE, TARGET = [[4, 5], [5], [4, 4, 5]], [[4, 5, 6], [5], [6, 4]]
PREPARE = "attnsweep prepare-corpus FILE --out CORPUS.parquet"


def _write(path: Path, metadata: dict[str, str] | None = None, **columns: Any) -> Path:
    lists = {"source": SOURCE, "target": TARGET, "part": ["train", "valid", "test"]} | columns
    source, target = (
        make_side(tuple(WORDS[name]), pa.array(each, pa.list_(pa.int32())))
        for name, each in (("source", SOURCE), ("target", TARGET))
    )
    stamp = {
        "corpus_schema_version": "2",
        "words": json.dumps(WORDS),
        "digest": make_corpus(source, target, np.array([TRAIN, VALID, TEST])).digest,
    }
    table = pa.Table.from_arrays(
        [pa.array(lists[field.name], field.type) for field in CORPUS_FILE.schema],
        schema=CORPUS_FILE.schema.with_metadata(metadata or stamp),
    )
    pq.write_table(table, path)
    return path


def test_what_is_read(tmp_path: Path) -> None:
    corpus = read_corpus(_write(tmp_path / "c.parquet"))
    assert corpus.source.tokens.tolist() == [[4, 5, EOS, PAD], [5, EOS, PAD, PAD], [4, 4, 5, EOS]]
    assert corpus.source.lengths.tolist() == [3, 2, 4]
    assert corpus.target.tokens.tolist() == [[4, 5, 6, EOS], [5, EOS, PAD, PAD], [6, 4, EOS, PAD]]
    assert corpus.target.words == tuple(WORDS["target"])
    assert corpus.part.tolist() == [TRAIN, VALID, TEST]
    assert corpus.gold is None
    assert {array.dtype for array in (corpus.part, corpus.source.tokens, corpus.target.lengths)} == {np.dtype("int64")}


def test_a_file_is_read_again_only_once_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _write(tmp_path / "c.parquet")
    first = read_corpus(path)
    monkeypatch.chdir(tmp_path)
    assert read_corpus("c.parquet") is first
    os.utime(path, ns=(0, 1))
    again = read_corpus(path)
    assert again is not first
    assert again.digest == first.digest


@pytest.mark.parametrize(
    "content", [b"eng\tita\nHello\tCiao\n", gzip.compress(b"eng\tita\nHello\tCiao\n", mtime=0), b"", b"PAR1 torn", None]
)
def test_what_is_not_prepared_is_refused_with_the_command_to_type(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "raw"
    if content is None:
        pq.write_table(pa.table({"eng": ["Hello"], "ita": ["Ciao"]}), path)
    else:
        path.write_bytes(content)
    with pytest.raises(UserError) as told:
        read_corpus(path)
    assert (told.value.subject, str(path) in str(told.value.given), PREPARE in told.value.fix) == ("corpus", True, True)


@pytest.mark.parametrize(
    "columns",
    [
        # These do not match their digest.
        {"source": [[4, 5], [4], [4, 4, 5]]},
        {"target": [[4, 5, 6], [5], [6]]},
        {"part": ["train", "test", "test"]},
        # These can be no corpus.
        {"source": [[4, 6], [5], [4]]},
        {"source": [[4, -1], [5], [4]]},
        {"source": [[4, EOS], [5], [4]]},
        {"target": [[4, None], [5], [4]]},
        {"target": [None, [5], [4]]},
        {"part": ["train", "valid", "dev"]},
        {"part": ["train", "valid", None]},
    ],
)
def test_rows_that_were_not_prepared_so_are_refused(tmp_path: Path, columns: dict[str, Any]) -> None:
    path = _write(tmp_path / "c.parquet", **columns)
    with refused("corpus", UserError):
        read_corpus(path)


def test_a_digest_tells_what_any_part_holds_and_where_it_ends() -> None:
    whole, words = np.arange(4), ("a", "b")
    parts: list[tuple[Any, ...]] = [(words, whole), (whole, words), (("ab",), whole), (words, whole[:3], whole[3:])]
    parts += [(words, whole.astype(float)), (words, whole.reshape(2, 2)), (words,)]
    assert len({digest_of(*each) for each in parts}) == len(parts)
    assert digest_of(words, whole) == digest_of(words, np.arange(8)[:4].astype(">i8"))
