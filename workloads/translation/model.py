"""What is trained: a translator, the structure of its attention, its label smoothing.

Axes: B sentence, T target token, V word, H head, Q query token, K key token.
"""

import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.translation.lookup import StudiedCorpus
from attnsweep.workloads.translation.parameters import TranslationParameters
from attnsweep.workloads.translation.sight import Structure, sights
from attnsweep.workloads.translation.translator import Sight, Translator, TranslatorShape


class TranslationModel(nn.Module):
    """The module of one training.

    Attributes:
        label_smoothing: () share of the target spread over all words; no part of the model's answers.
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
        )
        self.translator = Translator(shape, parameters.attention_scale, parameters.layer_norm_eps)
        self.structure = Structure(parameters, longest)
        self.register_buffer("label_smoothing", torch.tensor(parameters.label_smoothing, dtype=torch.float64))

    def forward(self, batch: Batch) -> Tensor:
        """(B, T, V) logits of the word after each that is read."""
        logit_BTV: Tensor = self.translator(batch["source"], batch["read"], self._sights(batch))
        return logit_BTV

    def attention(self, batch: Batch) -> dict[str, Tensor]:
        """The attention weights (B, H, Q, K) of each layer."""
        return self.translator.attention(batch["source"], batch["read"], self._sights(batch))

    def _sights(self, batch: Batch) -> dict[str, Sight]:
        return sights(self.structure, batch, self.translator.scale.dtype)
