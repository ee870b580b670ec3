"""Strings of formal languages for tests, and encoders with random weights."""

import itertools

import torch
from torch import Tensor

from attnsweep.workloads.formal_languages.encoder import Encoder, EncoderShape
from attnsweep.workloads.formal_languages.language import Tokens, tokenize
from attnsweep.workloads.formal_languages.languages import LANGUAGES


def every_string(length: int) -> Tensor:
    """(2^length, length) bool."""
    return torch.tensor(list(itertools.product([False, True], repeat=length)))


def random_strings(n_strings: int, length: int) -> Tensor:
    """(n_strings, length) bool."""
    return torch.rand(n_strings, length, generator=torch.Generator().manual_seed(length)) < 0.5


def tokens(language: str, text: Tensor, representation: str) -> Tokens:
    """Strings of one length, as an encoder reads them."""
    length = torch.full(text.shape[:1], text.shape[1])
    found = tokenize(LANGUAGES[language], text, length, representation)
    return Tokens(found.feature_BTF, found.log_count_BT, found.log_n[0])


def members(language: str, text: Tensor) -> Tensor:
    """(B,) bool."""
    return LANGUAGES[language].contains(text, torch.full(text.shape[:1], text.shape[1]))


def random_encoder(
    attention_scale: str = "inv_sqrt_d",
    layer_norm_eps: float = 1e-5,
    *,
    n_layers: int = 2,
    n_heads: int = 1,
    n_position_features: int = 1,
    has_layer_norm: bool = True,
) -> Encoder:
    """Width 8, float64, all parameters N(0, 0.5^2)."""
    shape = EncoderShape(
        n_layers=n_layers,
        n_heads=n_heads,
        d_model=8,
        d_ffn=12,
        n_position_features=n_position_features,
        has_layer_norm=has_layer_norm,
    )
    encoder = Encoder(shape, attention_scale, layer_norm_eps).double()
    generator = torch.Generator().manual_seed(0)
    for value in encoder.parameters():
        value.data.normal_(std=0.5, generator=generator)
    return encoder
