"""Writing a prepared corpus: the whole file appears at once, or nothing does."""

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from attnsweep.orchestrator.storage.output_file import check_output, writing_file
from attnsweep.orchestrator.tools.prepare_corpus.preparation import PreparedCorpus
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.translation.prepared import (
    DIGEST_KEY,
    PART_NAMES,
    SCHEMA,
    SCHEMA_VERSION,
    VERSION_KEY,
    WORDS_KEY,
    is_prepared,
)

ORIGIN_KEY, SETTINGS_KEY, REPORT_KEY = "origin", "settings", "report"
"""Keys of the metadata that readers do not need: where the sentences came from, and what became of them."""


def check_out(out: Path) -> None:
    """Checks that a corpus may be written to a path, without touching it.

    Raises:
        UserError: If its folder cannot be written, or something else than a prepared corpus is there.
    """
    check_output(out)
    if out.exists() and not is_prepared(out):
        raise UserError(
            "--out", given=str(out), expected="a new file, or a prepared corpus to replace", fix="choose another"
        )


def write_corpus(
    prepared: PreparedCorpus, out: Path, origin: Mapping[str, object], settings: Mapping[str, object]
) -> None:
    """Writes a corpus file, on the disk before it gets its name.

    Args:
        prepared: The corpus.
        out: Where.
        origin: The file and columns it came from.
        settings: How it was prepared.

    Raises:
        UserError: If the file cannot be written.
    """
    corpus = prepared.corpus
    contents = {
        VERSION_KEY: str(SCHEMA_VERSION),
        DIGEST_KEY: corpus.digest,
        WORDS_KEY: _json({"source": corpus.source.words, "target": corpus.target.words}),
        ORIGIN_KEY: _json(origin),
        SETTINGS_KEY: _json(settings),
        REPORT_KEY: _json(prepared.report.to_dict()),
    }
    part = pa.DictionaryArray.from_arrays(pa.array(corpus.part, pa.int8()), pa.array(PART_NAMES))
    table = pa.Table.from_arrays([prepared.source, prepared.target, part], schema=SCHEMA.with_metadata(contents))
    with writing_file(out) as path:
        pq.write_table(table, path, compression="zstd")


def _json(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False)
