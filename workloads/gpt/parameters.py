"""The parameters of a GPT's training, and their allowed combinations."""

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
from attnsweep.workloads.attention.layers import ACTIVATIONS
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.gpt.model import POSITIONS, GPTShape
from attnsweep.workloads.gpt.tasks import TASKS
from attnsweep.workloads.gpt.text import read_text
from attnsweep.workloads.parameters import TrainingParameters, Value, parameter, with_default
from attnsweep.workloads.prepared_files import pinned_file

_N_WORDS = 4
_OF_SHAPE = {field.name for field in fields(GPTShape)}


@dataclass(frozen=True, kw_only=True)
class GPTParameters(TrainingParameters):
    init_sigma: float | None = with_default("init_sigma", None)
    optimizer: str = with_default("optimizer", "adam")
    learning_rate: float = with_default("learning_rate", 3e-3)
    n_steps: int = with_default("n_steps", 1000)
    dtype: str = with_default("dtype", "float32", choices=("float32", "float64"))
    probe_every: int | None = parameter(None, "steps between probes; null = the default ones", low=1, static=True)

    task: str = parameter("bigram_table", "what the model learns to predict", choices=tuple(TASKS), static=True)
    corpus: str | None = parameter(None, "text: a file that attnsweep prepare-corpus --unit wrote", static=True)
    corpus_digest: str | None = parameter(None, "hash of the corpus, filled in from its file", static=True)
    n_words: int = parameter(
        _N_WORDS, "size of the vocabulary; of a text filled in", low=2, high=2**31 - 1, static=True
    )
    n_tokens: int = parameter(5, "tokens per sequence", low=3, high=1024, static=True)
    batch_size: int = parameter(64, "sequences per step", low=1, high=1_000_000, static=True)
    eval_batch_size: int = parameter(256, "held-out sequences for eval_loss", low=1, high=1_000_000, static=True)
    chain_contrast: float = parameter(
        2.0, "order_2_chain: deviation of the logits of its transitions; 0 = uniform tokens", low=0.0, high=10.0
    )

    n_blocks: int = parameter(1, "blocks", low=1, high=100, static=True)
    n_heads: int = parameter(1, "attention heads of a block", low=1, high=1000, static=True)
    d_model: int = parameter(16, "width of the model", low=1, high=10_000, static=True)
    d_ffn: int | None = parameter(None, "feed-forward width; null = 4 d_model", low=1, high=100_000, static=True)
    positions: str = parameter("learned", "position embeddings", choices=POSITIONS, static=True)
    tied: bool = parameter(False, "whether the logits are read from the token embeddings, without a bias", static=True)
    qk: str = qk_parameter()
    qk_rank: int | None = qk_rank_parameter()
    activation: str = parameter("relu", "activation of the feed-forward parts", choices=tuple(ACTIVATIONS), static=True)
    layer_norm_eps: float = parameter(1e-5, "added to the variance, inside the root; may be 0", low=0.0)
    attention_scale: str = attention_scale_parameter()

    variant_field: ClassVar[str | None] = "task"

    @property
    def shape(self) -> GPTShape:
        sizes: dict[str, Any] = {name: value for name, value in self.values().items() if name in _OF_SHAPE}
        return GPTShape(**sizes)

    def __post_init__(self) -> None:
        check_heads(self.d_model, self.n_heads, self.qk, self.qk_rank)
        for name, value in self.pinned(self.values()).items():
            object.__setattr__(self, name, value)
        TASKS[self.task].check(self.n_words, self.n_tokens, self.corpus)

    @classmethod
    def pinned(cls, values: Mapping[str, Value]) -> dict[str, Value]:
        """The corpus file's absolute path, the hash of its content, and the size of its vocabulary."""
        corpus = values.get("corpus")
        if not isinstance(corpus, str):
            return {}
        path = Path(corpus).absolute()
        text = read_text(path)
        pinned = pinned_file(values, path, text)
        if values.get("n_words", _N_WORDS) not in (_N_WORDS, len(text.words)):
            expected = f"{len(text.words)} words, the size of the vocabulary of {path}"
            fix = "remove n_words, which follows from the corpus"
            raise SpecError("n_words", given=values["n_words"], expected=expected, fix=fix)
        return pinned | {"n_words": len(text.words)}
