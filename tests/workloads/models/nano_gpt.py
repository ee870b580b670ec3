"""A model as users bring it: the form of nanoGPT's, in 40 lines, with nothing of attnsweep in it."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class Block(nn.Module):
    def __init__(self, width: int, n_heads: int, n_tokens: int, dropout: float) -> None:
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
        answer: Tensor = self.dropout(self.c_proj(y))
        return answer

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.ln_1(x))
        return x + F.dropout(self.mlp(self.ln_2(x)), self.dropout.p, self.training)


class NanoGPT(nn.Module):
    def __init__(
        self, vocab: int, width: int = 16, n_heads: int = 2, n_layers: int = 2, n_tokens: int = 8, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(n_tokens, width)
        self.h = nn.ModuleList(Block(width, n_heads, n_tokens, dropout) for _ in range(n_layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        self.wte.weight = self.lm_head.weight
        for name, parameter in self.named_parameters():
            if name.endswith("weight") and parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, idx: Tensor) -> Tensor:
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1), device=idx.device))
        for block in self.h:
            x = block(x)
        logits: Tensor = self.lm_head(self.ln_f(x))
        return logits
