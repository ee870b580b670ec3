"""A grammar of few words and translators of few channels, for tests. Axes: B sentence, N sentence pair."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from attnsweep.workloads.engine.contract import Batch, Lanes, Training
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults
from attnsweep.workloads.translation import Translation, TranslationParameters
from attnsweep.workloads.translation.corpus import CORPUS_FILE, PART_NAMES, Corpus, Side, make_corpus
from attnsweep.workloads.translation.data import by_length, pairs_of, studied_corpus
from attnsweep.workloads.translation.model import TranslationModel

WORKLOAD = Translation()
SMALL: dict[str, Value] = {
    "n_sentences": 200,
    "n_nouns": 6,
    "n_transitive_verbs": 4,
    "n_intransitive_verbs": 2,
    "n_adjectives": 3,
    "n_names": 8,
    "n_heads": 2,
    "d_model": 8,
    "d_ffn": 12,
    "batch_size": 8,
    "n_steps": 24,
    "n_probes": 3,
    "eval_sentences": 40,
    "head_sentences": 30,
    "test_sentences": 12,
}
STRUCTURES: dict[str, dict[str, Value]] = {
    "full": {},
    "itself": {"window": 0},
    "band": {"window": 1},
    "first": {"window": 1, "num_pos": 2, "global_columns": "first"},
    "rarest": {"window": 1, "num_pos": 2, "global_columns": "rarest"},
    "rarest, log n": {"window": 0, "num_pos": 3, "global_columns": "rarest", "attention_scale": "log_n_inv_sqrt_d"},
    "log n": {"attention_scale": "log_n_inv_sqrt_d"},
}


def small(**values: Value) -> TranslationParameters:
    """Parameters of a small translator, some changed."""
    return defaults(WORKLOAD, **(SMALL | values))


def lanes(*parameters: TranslationParameters, seed: int = 0) -> Lanes[TranslationParameters]:
    """Trainings with seeds from `seed` on."""
    return Lanes([Training(each, seed + lane) for lane, each in enumerate(parameters)], torch.device("cpu"))


def random_model(parameters: TranslationParameters, seed: int = 0) -> TranslationModel:
    """float64, all parameters N(0, 0.4^2)."""
    model = WORKLOAD.build(parameters).double()
    generator = torch.Generator().manual_seed(seed)
    for value in model.parameters():
        value.data.normal_(std=0.4, generator=generator)
    return model


def batch_of(parameters: TranslationParameters, pairs: NDArray[np.int64]) -> Batch:
    """Pairs of the corpus, (B, ...), padded to the longest of them."""
    studied = studied_corpus(parameters)
    bucket = by_length(studied.corpus, pairs, 1)[0]
    words = pairs_of(studied, torch.as_tensor(bucket.pairs).unsqueeze(0), bucket)
    return {name: value[0] for name, value in words.items()}


def texts(side: Side, pairs: NDArray[np.int64]) -> list[str]:
    """The words of sentences, without EOS."""
    return [" ".join(side.words[word] for word in side.tokens[pair, : side.lengths[pair] - 1]) for pair in pairs]


def written_as_real_text(corpus: Corpus, path: Path) -> str:
    """A prepared corpus of the same sentences, without annotations."""
    words = {"source": corpus.source.words, "target": corpus.target.words}
    columns = [
        [tokens[: length - 1].tolist() for tokens, length in zip(side.tokens, side.lengths, strict=True)]
        for side in (corpus.source, corpus.target)
    ]
    columns.append([PART_NAMES[part] for part in corpus.part])
    stamp = {
        "corpus_schema_version": "2",
        "words": json.dumps(words),
        "digest": make_corpus(corpus.source, corpus.target, corpus.part).digest,
    }
    arrays = [pa.array(column, field.type) for column, field in zip(columns, CORPUS_FILE.schema, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=CORPUS_FILE.schema.with_metadata(stamp)), path)
    return str(path)
