"""The same encoder in PyTorch's own modules: every token, every query."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from attnsweep.workloads.formal_languages.encoder import Encoder, EncoderLayer

_SCALES: dict[str, Callable[[int, int], tuple[float, float]]] = {
    # Factors of PyTorch's W_Q and b_Q, which 1/sqrt(d) follows: (d, n) -> (weight, bias).
    "inv_sqrt_d": lambda _, __: (1.0, 1.0),
    "one": lambda d, _: (math.sqrt(d), math.sqrt(d)),
    "log_n_inv_sqrt_d": lambda _, n: (math.log(n), math.log(n)),
    "log_n_query_inv_sqrt_d": lambda _, n: (math.log(n), 1.0),
}


class TorchEncoder:
    """`nn.TransformerEncoder` with an encoder's weights.

    Args:
        encoder: Its weights are taken.
        attention_scale: As it was built with.
        n_positions: What log n is taken of.
    """

    def __init__(self, encoder: Encoder, attention_scale: str, n_positions: int) -> None:
        shape = encoder.shape
        layer = nn.TransformerEncoderLayer(shape.d_model, shape.n_heads, shape.d_ffn, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, shape.n_layers, enable_nested_tensor=False).double()
        factors = _SCALES[attention_scale](shape.d_model // shape.n_heads, n_positions)
        for ours, theirs in zip(encoder.layers, self.body.layers, strict=True):
            assert isinstance(ours, EncoderLayer)
            _copy(ours, theirs, factors, float(encoder.layer_norm_eps))
        self.symbol = encoder.symbol_SD.detach().clone().requires_grad_()
        self.position = encoder.position_PD
        self.answer = nn.Linear(shape.d_model, 1).double()
        self.answer.weight.data = encoder.answer_weight_D1.detach().T.clone()
        self.answer.bias.data = encoder.answer_bias_1.detach().clone()

    def __call__(self, feature_BTF: Tensor) -> Tensor:
        """(B,) logits."""
        embedded = feature_BTF @ torch.cat([self.symbol, self.position])
        answer: Tensor = self.answer(self.body(embedded)[:, 0])[:, 0]
        return answer

    def gradients(self) -> dict[str, Tensor]:
        """Gradients by the encoder's parameter names; they equal its own if attention is not rescaled."""
        found = {"symbol_SD": self.symbol, "answer_weight_D1": self.answer.weight, "answer_bias_1": self.answer.bias}
        for index, layer in enumerate(self.body.layers):
            found |= {f"layers.{index}.{name}": value for name, value in parameters_of(layer).items()}
        gradients = {name: value.grad for name, value in found.items()}
        return {name: each.T if each.dim() == 2 and name != "symbol_SD" else each for name, each in gradients.items()}  # type: ignore[union-attr, misc]


def parameters_of(layer: nn.TransformerEncoderLayer) -> dict[str, Tensor]:
    """PyTorch's parameters by our names; matrices are transposed to ours."""
    return {
        "in_weight_DE": layer.self_attn.in_proj_weight,
        "in_bias_E": layer.self_attn.in_proj_bias,
        "out_weight_DD": layer.self_attn.out_proj.weight,
        "out_bias_D": layer.self_attn.out_proj.bias,
        "first_weight_DW": layer.linear1.weight,
        "first_bias_W": layer.linear1.bias,
        "second_weight_WD": layer.linear2.weight,
        "second_bias_D": layer.linear2.bias,
        "attended_gain_D": layer.norm1.weight,
        "attended_bias_D": layer.norm1.bias,
        "output_gain_D": layer.norm2.weight,
        "output_bias_D": layer.norm2.bias,
    }


def _copy(
    ours: EncoderLayer, theirs: nn.TransformerEncoderLayer, factors: tuple[float, float], layer_norm_eps: float
) -> None:
    for name, value in parameters_of(theirs).items():
        own = getattr(ours, name).detach()
        value.data = (own.T if own.dim() == 2 else own).clone()
    width = theirs.self_attn.embed_dim
    theirs.self_attn.in_proj_weight.data[:width] *= factors[0]
    theirs.self_attn.in_proj_bias.data[:width] *= factors[1]
    theirs.norm1.eps = theirs.norm2.eps = layer_norm_eps
