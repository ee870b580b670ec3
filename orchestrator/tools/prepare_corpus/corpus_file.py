"""Writing a prepared corpus, atomically: the whole file appears at once, or not at all."""

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
"""Keys of the metadata that readers do not need: the source of the sentences, the settings and the report."""


def check_out(out: Path) -> None:
    """Checks that a corpus may be written to a path, without touching it.

    Raises:
        UserError: If its folder cannot be written, or the path holds something other than a prepared corpus.
    """
    check_output(out)
    if out.exists() and not is_prepared(out):
        raise UserError(
            "--out", given=str(out), expected="a new file, or a prepared corpus to replace", fix="choose another"
        )


def write_corpus(
    prepared: PreparedCorpus, out: Path, origin: Mapping[str, object], settings: Mapping[str, object]
) -> None:
    """Writes a corpus file; its content is on the disk before the file gets its name.

    Args:
        prepared: The corpus.
        out: The file's path.
        origin: The file and columns it came from.
        settings: The settings of the preparation.

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
