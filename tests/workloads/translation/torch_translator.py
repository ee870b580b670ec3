"""The same translator in PyTorch's own modules, with its own masks.

Axes: B sentence, S source token, T target token, D model.
"""

import math

import torch
from torch import Tensor, nn

from attnsweep.workloads.translation.corpus import PAD
from attnsweep.workloads.translation.translator import LAYERS, Translator


class OutsideNorm(nn.Module):
    """LayerNorm as in the thesis: epsilon added to the n - 1 deviation, gain and bias per channel."""

    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.zeros(d_model)) for _ in range(2))
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., D)."""
        mean, deviation = x.mean(-1, keepdim=True), torch.std(x, -1, keepdim=True)
        return self.weight * (x - mean) / (deviation + self._eps) + self.bias


class TorchTranslator(nn.Module):
    """`nn.MultiheadAttention`, `nn.LayerNorm`, `nn.Linear` and `nn.Embedding` with a translator's weights.

    Args:
        translator: Its weights are taken, and its epsilon.
    """

    def __init__(self, translator: Translator) -> None:
        super().__init__()
        shape, eps = translator.shape, float(translator.layer_norm_eps)
        D, H, W = shape.d_model, shape.n_heads, shape.d_ffn
        self.attentions = nn.ModuleDict({name: nn.MultiheadAttention(D, H, batch_first=True) for name in LAYERS})
        self.norms = nn.ModuleDict(
            {
                name: nn.LayerNorm(D, eps=eps) if shape.eps_inside_root else OutsideNorm(D, eps)
                for name in translator.norms
            }
        )
        self.ffns = nn.ModuleDict(
            {
                name: nn.Sequential(nn.Linear(D, W), nn.ReLU(), nn.Linear(W, D))
                for name in ("encoder_ffn", "decoder_ffn")
            }
        )
        self.source = nn.Embedding(shape.n_source_words, D)
        self.target = nn.Embedding(shape.n_target_words, D)
        self.answer = nn.Linear(D, shape.n_target_words)
        self.double()
        for name, ours in translator.named_parameters():
            theirs, is_transposed = self._counterpart(name)
            theirs.data.copy_(ours.detach().T if is_transposed else ours.detach())

    def forward(self, source_BS: Tensor, read_BT: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """(B, T, V) logits, and attention weights by layer."""
        weights = {}

        def attend(name: str, asking: Tensor, asked: Tensor, tokens: Tensor, past: Tensor | None = None) -> Tensor:
            given, weights[name] = self.attentions[name](
                asking, asked, asked, key_padding_mask=tokens == PAD, attn_mask=past, average_attn_weights=False
            )
            tensor: Tensor = given
            return tensor

        x = self._embedded(self.source, source_BS)
        normal = self.norms["encoder_self"](x)
        x = x + attend("encoder_self", normal, normal, source_BS)
        x = x + self.ffns["encoder_ffn"](self.norms["encoder_ffn"](x))
        memory = self.norms["encoder_end"](x)
        y = self._embedded(self.target, read_BT)
        normal = self.norms["decoder_self"](y)
        T = read_BT.shape[1]
        y = y + attend("decoder_self", normal, normal, read_BT, torch.ones(T, T, dtype=torch.bool).triu(1))
        y = y + attend("cross", self.norms["cross"](y), memory, source_BS)
        y = y + self.ffns["decoder_ffn"](self.norms["decoder_ffn"](y))
        return self.answer(self.norms["decoder_end"](y)), weights

    def gradient(self, name: str) -> Tensor:
        """The gradient of the translator's parameter of this name."""
        theirs, is_transposed = self._counterpart(name, of_gradient=True)
        return theirs.T if is_transposed else theirs

    def _embedded(self, words: nn.Embedding, tokens_BT: Tensor) -> Tensor:
        D = words.embedding_dim
        positions = [
            [(math.sin, math.cos)[c % 2](p / 10000.0 ** (2 * (c // 2) / D)) for c in range(D)]
            for p in range(tokens_BT.shape[1])
        ]
        embedded: Tensor = words(tokens_BT)
        return embedded * math.sqrt(D) + torch.tensor(positions, dtype=torch.float64)

    def _counterpart(self, name: str, *, of_gradient: bool = False) -> tuple[Tensor, bool]:
        """PyTorch's tensor for a parameter of ours, or its gradient, and whether it is transposed."""

        def value(parameter: Tensor) -> Tensor:
            assert not of_gradient or parameter.grad is not None
            return parameter.grad if of_gradient else parameter.data  # type: ignore[return-value]

        *path, last = name.split(".")
        if not path:
            whole = {
                "source_embedding_VD": (self.source.weight, False),
                "target_embedding_VD": (self.target.weight, False),
                "word_weight_DV": (self.answer.weight, True),
                "word_bias_V": (self.answer.bias, False),
            }
            return value(whole[last][0]), whole[last][1]
        if path[0] == "norms":
            norm = self.norms[path[1]]
            assert isinstance(norm, nn.LayerNorm | OutsideNorm)
            return value({"gain_D": norm.weight, "bias_D": norm.bias}[last]), False
        if path[0] in self.ffns:
            first, _, second = self.ffns[path[0]].children()
            assert isinstance(first, nn.Linear)
            assert isinstance(second, nn.Linear)
            found = {
                "first_weight_DW": first.weight,
                "first_bias_W": first.bias,
                "second_weight_WD": second.weight,
                "second_bias_D": second.bias,
            }[last]
            return value(found), found.dim() == 2
        attention = self.attentions[path[0]]
        assert isinstance(attention, nn.MultiheadAttention)
        D = attention.embed_dim
        weight, bias = value(attention.in_proj_weight), value(attention.in_proj_bias)
        return {
            "query_weight_DD": (weight[:D], True),
            "query_bias_D": (bias[:D], False),
            "key_value_weight_DE": (weight[D:], True),
            "key_value_bias_E": (bias[D:], False),
            "out_weight_DD": (value(attention.out_proj.weight), True),
            "out_bias_D": (value(attention.out_proj.bias), False),
        }[last]
