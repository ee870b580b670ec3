"""A segment of different tokens, repeated, for models that nobody wrote for attnsweep: five, as users bring them."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import attnsweep as at


class Block(nn.Module):
    """In the form of nanoGPT: q, k and v in one layer, the causal mask in a buffer."""

    def __init__(self, width: int, n_tokens: int, dropout: float, n_heads: int = 2) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.tril(torch.ones(n_tokens, n_tokens)).view(1, 1, n_tokens, n_tokens))

    def attend(self, x: Tensor) -> Tensor:
        B, T, C = x.size()
        q, k, v = (part.view(B, T, self.n_heads, -1).transpose(1, 2) for part in self.c_attn(x).split(C, dim=2))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.get_buffer("mask")[:, :, :T, :T] == 0, float("-inf"))
        att = self.dropout(F.softmax(att, dim=-1))
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.dropout(self.c_proj(y))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.ln_1(x))
        return x + self.dropout(self.mlp(self.ln_2(x)))


class NanoGPT(nn.Module):
    """Two blocks, and a head tied to the embedding."""

    def __init__(self, n_words: int, width: int, n_tokens: int, dropout: float) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(n_words, width), nn.Embedding(n_tokens, width)
        self.h = nn.ModuleList(Block(width, n_tokens, dropout) for _ in range(2))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, n_words, bias=False)
        self.wte.weight = self.lm_head.weight
        for name, weight in self.named_parameters():
            if name.endswith("weight") and weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, idx: Tensor) -> Tensor:
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1), device=idx.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Encoder(nn.Module):
    """Two layers of PyTorch's own, with a causal mask."""

    def __init__(self, n_words: int, width: int, n_tokens: int, dropout: float) -> None:
        super().__init__()
        self.word, self.position = nn.Embedding(n_words, width), nn.Embedding(n_tokens, width)
        layer = nn.TransformerEncoderLayer(width, 2, 4 * width, dropout, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, n_words)

    def forward(self, token: Tensor) -> Tensor:
        x = self.word(token) + self.position.weight
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf"), dtype=x.dtype, device=x.device).triu(1)
        return self.head(self.encoder(x, mask, is_causal=True))  # PyTorch would compare the mask, by value


def gpt2(n_words: int, width: int, n_tokens: int, dropout: float) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": n_words, "n_positions": n_tokens, "n_embd": width, "n_layer": 2, "n_head": 2}
    ends = {"bos_token_id": None, "eos_token_id": None}
    dropped = {f"{place}_pdrop": dropout for place in ("embd", "attn", "resid")}
    return GPT2LMHeadModel(GPT2Config(**sizes, **ends, **dropped))


def llama(n_words: int, width: int, n_tokens: int) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": n_words, "hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2, max_position_embeddings=n_tokens))


def transformer_lens(n_words: int, width: int, n_tokens: int) -> nn.Module:
    from transformer_lens.model_bridge import TransformerBridge

    sizes = {"d_vocab": n_words, "d_model": width, "n_ctx": n_tokens, "n_layers": 2, "n_heads": 2, "d_head": width // 2}
    return TransformerBridge.boot_native({**sizes, "d_mlp": 4 * width, "act_fn": "gelu"})


def model(
    model: Literal["nanogpt", "encoder", "gpt2", "llama", "transformer_lens"] = "nanogpt",
    n_words: int = at.parameter(8, "size of the vocabulary; a segment has half of it or more", low=4),
    width: int = at.parameter(16, "width of the model", low=4),
    dropout: float = at.parameter(0.0, "of nanogpt, encoder and gpt2", low=0.0, high=0.9, static=True),
) -> nn.Module:
    sizes = n_words, width, 2 * n_words - 1
    if model in ("llama", "transformer_lens"):
        return {"llama": llama, "transformer_lens": transformer_lens}[model](*sizes)
    return {"nanogpt": NanoGPT, "encoder": Encoder, "gpt2": gpt2}[model](*sizes, dropout)


def data(draw: at.Draw, n_words: int, batch_size: int = 16) -> tuple[Tensor, Tensor]:
    length = n_words - draw.integers(n_words // 2 + 1, batch_size, 1)
    position = torch.arange(2 * n_words, device=length.device)
    token = draw.permutation(n_words, batch_size).gather(1, position % length)
    target = torch.where(position[1:] > length, token[:, 1:], -100)  # the first round cannot be predicted
    return token[:, :-1], target


def context(target: Tensor) -> Tensor:
    """The loss of one who knows the segment's tokens, but not their order."""
    counts = (target != -100).sum(1)  # a segment of n tokens leaves 2 * n_words - 1 - n
    return (counts * (target.shape[1] - counts - 1.0).log()).sum() / counts.sum()


borrowed = at.problem(
    "borrowed",
    model=model,
    data=data,
    loss="cross_entropy",
    solved="accuracy >= 0.99",
    levels={"context": context},
    heads=("previous_token", "induction"),
    defaults={"optimizer": "adam", "n_steps": 1000},
    summary="a repeated random segment, for a borrowed model",
)


def sweep() -> at.Sweep:
    space = {"learning_rate": at.Float(1e-3, 1e-2, log=True), "dropout": at.Categorical((0.0, 0.1))}
    return at.Sweep(name="borrowed", workload="borrowed.py:borrowed", space=space, trials=8, replicates=2)
