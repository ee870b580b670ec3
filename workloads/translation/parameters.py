"""The parameters of a translator's training, and their allowed combinations."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from attnsweep.workloads.attention.attention import (
    attention_scale_parameter,
    check_heads,
    qk_parameter,
    qk_rank_parameter,
)
from attnsweep.workloads.parameters import TrainingParameters, Value, parameter, with_default
from attnsweep.workloads.prepared_files import pinned_file
from attnsweep.workloads.translation.corpus import TRAIN, read_corpus
from attnsweep.workloads.translation.grammar import LexiconSizes

GRAMMAR = "grammar"
"""The value of `corpus` for generated sentences."""
_SENTENCES_OF_GRAMMAR = 5000
LAYER_NORM_CONVENTIONS = ("inside_root", "outside_root")
GLOBAL_COLUMNS = ("first", "rarest")


def _n_lexemes(name: str, words: str) -> Any:
    return parameter(getattr(LexiconSizes(), name), f"{words} of the grammar", low=1, high=100_000, static=True)


@dataclass(frozen=True, kw_only=True)
class TranslationParameters(TrainingParameters):
    init_sigma: float | None = with_default("init_sigma", None, doc="standard deviation; null = Xavier's uniform")
    optimizer: str = with_default("optimizer", "adam")
    learning_rate: float = with_default("learning_rate", 3e-3)
    n_steps: int = with_default("n_steps", 0, doc="optimizer steps; 0 = n_epochs epochs", low=0)
    dtype: str = with_default("dtype", "float32", choices=("float32", "float64"))
    stop_when_solved: bool = with_default("stop_when_solved", False)

    corpus: str = parameter(GRAMMAR, "`grammar`, or a file that attnsweep prepare-corpus wrote", static=True)
    corpus_digest: str | None = parameter(None, "hash of the corpus, filled in from its file", static=True)
    corpus_seed: int = parameter(0, "seed of the grammar's sentences", low=0, high=2**62, static=True)
    n_sentences: int | None = parameter(
        None, "training pairs; null = 5000 from the grammar, or all of a file", low=1, high=10_000_000, static=True
    )
    n_nouns: int = _n_lexemes("n_nouns", "nouns")
    n_transitive_verbs: int = _n_lexemes("n_transitive_verbs", "transitive verbs")
    n_intransitive_verbs: int = _n_lexemes("n_intransitive_verbs", "intransitive verbs")
    n_adjectives: int = _n_lexemes("n_adjectives", "adjectives")
    n_names: int = _n_lexemes("n_names", "proper names")

    train_on: str = parameter(
        "all", "train on all pairs, or on those with sources up to the median", choices=("all", "short"), static=True
    )
    n_epochs: int = parameter(2, "passes over n_sentences pairs, if n_steps is 0", low=1, high=1_000_000, static=True)
    batch_size: int = parameter(16, "sentences per step", low=1, high=100_000, static=True)
    label_smoothing: float = parameter(0.1, "share of the target spread over all words", low=0.0, high=0.99)
    n_probes: int = parameter(
        5, "probes of a training: at steps 0, ..., n_steps / 4, n_steps / 2, n_steps", low=2, high=32, static=True
    )
    probe_every: int | None = parameter(
        None, "steps between probes, in place of n_probes", low=1, high=2**31 - 1, static=True
    )
    eval_sentences: int = parameter(64, "held-out sentences for eval_loss", low=2, high=1_000_000, static=True)
    head_sentences: int = parameter(
        500, "held-out sentences on which heads are scored; 0 = none", low=0, high=1_000_000, static=True
    )
    test_sentences: int = parameter(
        100, "held-out sentences translated at the end; 0 = none, no BLEU", low=0, high=1_000_000, static=True
    )

    n_heads: int = parameter(8, "attention heads of each layer", low=1, high=1000, static=True)
    d_model: int = parameter(64, "width of the model", low=2, high=10_000, static=True)
    qk: str = qk_parameter()
    qk_rank: int | None = qk_rank_parameter()
    d_ffn: int = parameter(256, "width of the feed-forward parts", low=1, high=100_000, static=True)
    dropout: float = parameter(
        0.0, "share of entries dropped, in embeddings and each sublayer's output", low=0.0, high=0.9, static=True
    )
    layer_norm_eps: float = parameter(1e-6, "epsilon of LayerNorm, by layer_norm_convention", low=0.0)
    layer_norm_convention: str = parameter(
        "inside_root",
        "epsilon is added to the variance inside the root, or to the standard deviation (Conti)",
        choices=LAYER_NORM_CONVENTIONS,
        static=True,
    )
    attention_scale: str = attention_scale_parameter()
    window: int | None = parameter(
        None, "half-width of the band that self-attention may see, tokens; null = all", low=0, high=1_000_000
    )
    num_pos: int = parameter(
        0, "columns that all queries may see besides the band; without a window all are seen", low=0, high=1_000_000
    )
    global_columns: str = parameter(
        "rarest", "these columns: the first tokens, or the rarest (in the decoder: so far)", choices=GLOBAL_COLUMNS
    )

    variant_field: ClassVar[str | None] = "corpus"

    @property
    def is_of_grammar(self) -> bool:
        return self.corpus == GRAMMAR

    @property
    def lexicon(self) -> LexiconSizes:
        return LexiconSizes(**{field.name: getattr(self, field.name) for field in fields(LexiconSizes)})

    @classmethod
    def pinned(cls, values: Mapping[str, Value]) -> dict[str, Value]:
        """The corpus file's absolute path and the hash of its content; nothing for the grammar."""
        corpus = values.get("corpus", GRAMMAR)
        if not isinstance(corpus, str) or corpus == GRAMMAR:
            return {}
        path = Path(corpus).absolute()
        return pinned_file(values, path, read_corpus(path))

    def __post_init__(self) -> None:
        self._follow_corpus()
        n_sentences = self.n_sentences or 0
        if self.batch_size > n_sentences:
            raise self.refused(
                "batch_size", f"at most n_sentences={n_sentences}", "lower batch_size, or raise n_sentences"
            )
        if self.n_steps == 0:
            object.__setattr__(self, "n_steps", self.n_epochs * (n_sentences // self.batch_size))
        check_heads(self.d_model, self.n_heads, self.qk, self.qk_rank)
        if self.layer_norm_convention == "outside_root" and self.layer_norm_eps == 0.0:
            expected = "> 0 with layer_norm_convention=outside_root, which divides by a deviation that may be 0"
            raise self.refused("layer_norm_eps", expected, "raise it, or set layer_norm_convention=inside_root")

    def _follow_corpus(self) -> None:
        if self.is_of_grammar:
            object.__setattr__(self, "n_sentences", self.n_sentences or _SENTENCES_OF_GRAMMAR)
            return
        for name, value in self.pinned(self.values()).items():
            object.__setattr__(self, name, value)
        n_given = int((read_corpus(self.corpus).part == TRAIN).sum())
        if (self.n_sentences or 0) > n_given:
            raise self.refused(
                "n_sentences", f"at most {n_given} sentences, the training part of {self.corpus}", "lower n_sentences"
            )
        object.__setattr__(self, "n_sentences", self.n_sentences or n_given)
