"""The trained module (translator, attention mask structure, label smoothing) and its Xavier initialization.

Axes: L lane, B sentence, T target token, V word, H head, Q query token, K key token.
"""

import math

import torch
from torch import Tensor, nn

from attnsweep.workloads.attention.sight import Sight
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.initialization import StartingLaw
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.translation.dropout import masks_of
from attnsweep.workloads.translation.lookup import StudiedCorpus
from attnsweep.workloads.translation.parameters import TranslationParameters
from attnsweep.workloads.translation.sight import Structure, sights
from attnsweep.workloads.translation.translator import Translator, TranslatorShape


class TranslationModel(nn.Module):
    """The translator of one training, with the structure that restricts what its attention sees.

    Attributes:
        label_smoothing: () the share of the target that is spread over all words; it changes the loss, not the logits.
    """

    label_smoothing: Tensor

    def __init__(self, parameters: TranslationParameters, studied: StudiedCorpus) -> None:
        super().__init__()
        source, target = studied.corpus.source, studied.corpus.target
        longest = max(source.tokens.shape[1], target.tokens.shape[1])
        shape = TranslatorShape(
            n_source_words=len(source.words),
            n_target_words=len(target.words),
            longest=longest,
            d_model=parameters.d_model,
            n_heads=parameters.n_heads,
            d_ffn=parameters.d_ffn,
            eps_inside_root=parameters.layer_norm_convention == "inside_root",
            qk=parameters.qk,
            qk_rank=parameters.qk_rank,
        )
        self.translator = Translator(shape, parameters.attention_scale, parameters.layer_norm_eps)
        self.structure = Structure(parameters, longest)
        self.register_buffer("label_smoothing", torch.tensor(parameters.label_smoothing, dtype=torch.float64))

    def forward(self, batch: Batch) -> Tensor:
        """Returns the logits (B, T, V) of the next word after each target word."""
        logit_BTV: Tensor = self.translator(batch["source"], batch["read"], self._sights(batch), masks_of(batch))
        return logit_BTV

    def attention(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the attention weights (B, H, Q, K) of each layer, by name."""
        return self.translator.attention(batch["source"], batch["read"], self._sights(batch), masks_of(batch))

    def _sights(self, batch: Batch) -> dict[str, Sight]:
        return sights(self.structure, batch, self.translator.scale.dtype)


def xaviers_law(streams: Streams) -> StartingLaw:
    """Makes an initializer that draws matrices, embeddings included, uniformly from +-sqrt(6 / (rows + columns)).

    The distribution is that of `torch.nn.init.xavier_uniform_`.

    Source: Glorot & Bengio 2010, equation 16.
    """

    def law(name: str, shape: tuple[int, ...]) -> Tensor | None:
        if len(shape) < 2:
            return None
        return math.sqrt(6.0 / (shape[0] + shape[1])) * (2.0 * streams.uniform(f"init/{name}", shape) - 1.0)

    return law
