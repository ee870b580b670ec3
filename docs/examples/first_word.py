"""First word: say at each position which word the sequence began with. A head with its own role, map and outcome."""

import torch
from torch import Tensor, nn

import attnsweep as at

WORDS, N_TOKENS = "abcd", 6


class Reader(nn.Module):
    """One head that sees positions only, made of none of attnsweep's parts."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(N_TOKENS, N_TOKENS))
        self.value = nn.Parameter(torch.zeros(len(WORDS), len(WORDS)))

    def forward(self, token: Tensor) -> Tensor:
        return self.logits.softmax(-1) @ self.value[token]

    def attention(self, token: Tensor) -> Tensor:
        """The weights (layer, sequence, head, query, key)."""
        return self.logits.softmax(-1).expand(1, len(token), 1, -1, -1)


def data(draw: at.Draw, batch_size: int = 64) -> tuple[Tensor, Tensor]:
    token = draw.integers(len(WORDS), batch_size, N_TOKENS)
    return token, token[:, :1].expand(-1, N_TOKENS)


def first(weights: Tensor) -> Tensor:
    return weights[..., 0].mean((1, 3))


first_word = at.problem(
    "first_word",
    model=Reader,
    data=data,
    loss="cross_entropy",
    solved=0.1,
    weights=lambda module, inputs: module.attention(inputs),
    heads={"first": first},
    metrics={"first_share": lambda module, inputs: first(module.attention(inputs)).mean()},
    outcomes={"uniform": at.Outcome("looks everywhere", when=f"first_share < {1.5 / N_TOKENS}", is_stuck=True)},
    vocabulary=WORDS,
    defaults={"optimizer": "adam", "learning_rate": 0.05, "n_steps": 200, "dtype": "float64"},
    summary="which word was the first?",
)


def sweep() -> at.Sweep:
    space = {"init_sigma": at.Float(1e-3, 1.0, log=True)}
    return at.Sweep(name="first_word", workload="first_word.py:first_word", space=space, trials=8, replicates=2)
