"""A user's own model and data, and his script that trains them in a plain loop. Imports nothing but PyTorch.

Axes: B sequence, T token, D channel, V word, H head.
"""

import time
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Attention and a feed-forward part, as in nanoGPT; the latter `ffn` times as wide, or none if 0."""

    def __init__(self, D: int, H: int, dropout: float, ffn: int) -> None:
        super().__init__()
        self.H, self.p, self.drop, self.ffn = H, dropout, nn.Dropout(dropout), ffn
        self.norm, self.qkv, self.out = nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        if ffn:
            self.ffn_norm, self.up, self.down = nn.LayerNorm(D), nn.Linear(D, ffn * D), nn.Linear(ffn * D, D)

    def forward(self, x_BTD: Tensor) -> Tensor:
        parts = self.qkv(self.norm(x_BTD)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.H, -1)).transpose(1, 2) for part in parts)
        p = self.p if self.training else 0.0
        attended = functional.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        x_BTD = x_BTD + self.drop(self.out(attended.transpose(1, 2).flatten(2)))
        if not self.ffn:
            return x_BTD
        added: Tensor = self.drop(self.down(functional.gelu(self.up(self.ffn_norm(x_BTD)))))
        return x_BTD + added


class Decoder(nn.Module):
    """Two blocks: the logits (B, T, V) of each token, or (B, V) of the last one."""

    def __init__(
        self, V: int, T: int, D: int, H: int = 1, dropout: float = 0.0, ffn: int = 4, *, is_last: bool = False
    ) -> None:
        super().__init__()
        self.word, self.place, self.is_last = nn.Embedding(V, D), nn.Parameter(torch.zeros(T, D)), is_last
        self.drop, self.blocks = nn.Dropout(dropout), nn.Sequential(*(Block(D, H, dropout, ffn) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, V)

    def forward(self, token_BT: Tensor) -> Tensor:
        x_BTD = self.blocks(self.drop(self.word(token_BT) + self.place))
        logits: Tensor = self.head(self.norm(x_BTD[:, -1] if self.is_last else x_BTD))
        return logits


class TorchDraw:
    """What `data` draws with in the plain loop."""

    def integers(self, n: int, *shape: int) -> Tensor:
        return torch.randint(n, shape)

    def permutation(self, n: int, *shape: int) -> Tensor:
        return torch.rand(*shape, n).argsort(-1)


def data(draw: Any, n_pairs: int, n_kinds: int = 8, batch_size: int = 64) -> tuple[Tensor, Tensor]:
    """Tokens (B, T), n_pairs pairs of a key and a value and then one of the keys; and that key's value (B)."""
    keys = draw.permutation(n_kinds, batch_size)[:, :n_pairs]
    values = n_kinds + draw.integers(n_kinds, batch_size, n_pairs)
    asked = draw.integers(n_pairs, batch_size, 1)
    tokens = torch.cat([torch.stack([keys, values], 2).flatten(1), keys.gather(1, asked)], 1)
    return tokens, values.gather(1, asked)[:, 0]


def train(shapes: Iterable[tuple[int, int]], dropout: float, n_steps: int, steps_a_probe: int) -> float:
    """Trains a model of each number of pairs and of heads; returns the CPU seconds."""
    torch.set_num_threads(1)
    began, draw = time.process_time(), TorchDraw()
    for n_pairs, n_heads in shapes:
        model, held_out = Decoder(16, 2 * n_pairs + 1, 32, n_heads, dropout, is_last=True), data(draw, n_pairs, 8, 512)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for step in range(n_steps + 1):
            if step % steps_a_probe == 0:
                model.eval()
                with torch.no_grad():
                    logits = model(held_out[0])
                    functional.cross_entropy(logits, held_out[1]).item()
                    (logits.argmax(-1) == held_out[1]).float().mean().item()
                model.train()
            tokens, target = data(draw, n_pairs)
            optimizer.zero_grad()
            functional.cross_entropy(model(tokens), target).backward()
            optimizer.step()
    return time.process_time() - began
