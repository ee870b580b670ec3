"""The histogram task: count how often the letter at each position occurs in the sequence.

One block adds a mixture of all tokens to each token, and answers through one hidden layer. If attention mixes the
tokens (`dot`, or `bos` with a token before the letters), the model can count by comparing letters. If weights that
depend on positions alone mix them (`lin`), it can count only by an inventory of letters, which the hidden layer has to
tell apart.

Source: Behrens, Biggio & Zdeborova 2024, arXiv 2407.11542 (code: SPOC-group/counting-attention).

Axes of one training: B sequence, T token, D model, W hidden unit, V answer.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from attnsweep.workloads.attention.layers import Embedding, LayerNorm, Linear
from attnsweep.workloads.declaration import parameter
from attnsweep.workloads.engine.constants import per_lane
from attnsweep.workloads.problem.data import Draw
from attnsweep.workloads.problem.declared import problem

Mixing = Literal["bos", "dot", "lin"]


class Counter(nn.Module):
    """x' = x + A N x, then W2 relu(W1 N x' + b1) + b2, with mixing weights A and LayerNorms N, or none."""

    def __init__(
        self, n_words: int, n_tokens: int, n_answers: int, *, D: int, W: int, mixing: Mixing, is_softmax: bool
    ) -> None:
        super().__init__()
        self.token = Embedding(n_words, D)
        self.query = Linear(D, D, bias=False) if mixing != "lin" else None
        self.key = Linear(D, D, bias=False) if mixing != "lin" else None
        self.places = Linear(n_tokens, n_tokens, bias=False) if mixing == "lin" else None
        self.scale = per_lane(1.0 if mixing == "lin" else D**-0.5)
        self.norms = nn.ModuleList([nn.Identity(), nn.Identity()])
        self.hidden, self.head = Linear(D, W), Linear(W, n_answers)
        self._is_softmax, self._n_unanswered = is_softmax, int(mixing == "bos")

    def attention(self, token_BT: Tensor) -> Tensor:
        """The mixing weights as those of one layer and head, (1, B, 1, T, T)."""
        return self._mixing(self.norms[0](self.token(token_BT))).expand(len(token_BT), -1, -1)[None, :, None]

    def forward(self, token_BT: Tensor) -> Tensor:
        """The logits, at each letter, of how often it occurs."""
        x_BTD = self.token(token_BT)
        normed_BTD = self.norms[0](x_BTD)
        mixed_BTD = x_BTD + self._mixing(normed_BTD) @ normed_BTD
        logits_BTV: Tensor = self.head(torch.relu(self.hidden(self.norms[1](mixed_BTD))))
        return logits_BTV[:, self._n_unanswered :]

    def _mixing(self, x_BTD: Tensor) -> Tensor:
        if self.places is not None:
            logits_BTT = self.scale * self.places.weight.unsqueeze(0)
        elif self.query is not None and self.key is not None:
            logits_BTT = self.scale * self.query(x_BTD) @ self.key(x_BTD).mT
        return logits_BTT.softmax(-1) if self._is_softmax else logits_BTT


def model(
    n_letters: int,
    n_tokens: int,
    mixing: Mixing,
    softmax: bool = parameter(True, "whether weights are a softmax of the logits; false: the logits themselves"),
    d_model: int = parameter(12, "d, width of the embeddings", low=1),
    d_ffn: int = parameter(12, "p, width of the hidden layer", low=1),
    attention_scale: float = parameter(1.0, "factor of the logits; of attention in units of 1/sqrt(d)"),
    norm: Literal["none", "pre"] = parameter("none", "pre: LayerNorms before attention and hidden layer"),
    layer_norm_eps: float = parameter(1e-5, "epsilon of norm=pre, inside the root", low=0.0),
) -> Counter:
    has_bos = mixing == "bos"
    counter = Counter(
        n_letters + has_bos, n_tokens + has_bos, n_tokens + 1, D=d_model, W=d_ffn, mixing=mixing, is_softmax=softmax
    )
    counter.scale *= attention_scale
    if norm == "pre":
        counter.norms = nn.ModuleList(LayerNorm(d_model, layer_norm_eps) for _ in range(2))
    return counter


def sequences(
    draw: Draw,
    n_letters: int = parameter(6, "T, letters of the alphabet; 32 in the source", low=2),
    n_tokens: int = parameter(4, "L, letters in a sequence; 10 in the source", low=2),
    mixing: Mixing = parameter("bos", "attention with a first token of no letter, without it, or weights by position"),
    batch_size: int = parameter(16, "sequences per step; 32 in the source", low=1),
) -> tuple[Tensor, Tensor]:
    """Letters, (B, T), and how often each occurs. Groups of equal letters stand at random positions; while r > 1 tokens
    are left, the length of the next group is uniform on 1 to r - 1."""
    share_TB, ends = draw.uniform(n_tokens, batch_size), []
    left_B = torch.full_like(share_TB[0], n_tokens, dtype=torch.long)
    for share_B in share_TB:
        drawn_B = 1 + (share_B * (left_B - 1)).long()
        left_B = left_B - torch.where(left_B > 1, drawn_B, left_B)
        ends.append(n_tokens - left_B)
    place_BT = draw.permutation(n_tokens, batch_size)
    group_BT = (place_BT.unsqueeze(-1) >= torch.stack(ends, -1).unsqueeze(1)).sum(-1)
    letter_BT = draw.permutation(n_letters, batch_size).gather(-1, group_BT.clamp(max=n_letters - 1))
    count_BT = (letter_BT.unsqueeze(-1) == letter_BT.unsqueeze(1)).sum(-1)
    if mixing == "bos":
        letter_BT = torch.cat([torch.full_like(letter_BT[:, :1], n_letters), letter_BT], -1)
    return letter_BT, count_BT


def same_letter(weights: Tensor, inputs: Tensor) -> Tensor:
    """The share of the mixing weights, by absolute value, on tokens with the query's letter, (layer, head)."""
    is_same_BTT = inputs.unsqueeze(-1) == inputs.unsqueeze(1)
    size = weights.abs()
    return ((size * is_same_BTT[:, None]).sum(-1) / size.sum(-1)).mean((1, 3))


HISTOGRAM = problem(
    "histogram",
    summary="how often does each letter stand in its sequence? (Behrens et al. 2024)",
    model=model,
    data=sequences,
    loss="cross_entropy",
    solved="accuracy >= 0.99",
    heads={"same_letter": same_letter},
    weights=lambda module, inputs: module.attention(inputs),
    defaults={"optimizer": "adam", "learning_rate": 2e-2, "beta_2": 0.98, "adam_eps": 1e-9, "n_steps": 1500},
    probe_steps=100,
)
