"""look_back: for each word, predict the word before it. Replace the model and the data with your own.

Everything here is written for ONE training; the engine trains many of them in one program.
"""

import torch
from torch import nn

import attnsweep as at


class Model(nn.Module):
    """A causal transformer of one block, built from attnsweep's parts."""

    def __init__(self, n_words: int, n_tokens: int, d_model: int, layer_norm_eps: float) -> None:
        super().__init__()
        self.word, self.position = at.Embedding(n_words, d_model), at.Embedding(n_tokens, d_model)
        # TransformerBlock also accepts the arguments n_heads, d_ffn, activation, qk="merged", qk_rank and
        # attention_scale.
        self.block = at.TransformerBlock(d_model, layer_norm_eps=layer_norm_eps)
        self.head = at.Linear(d_model, n_words)

    def trace(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the logits (sequence, position, word), and the attention weights (layer, sequence, head, query,
        key)."""
        x = self.word(words) + self.position.weight
        x, weights = self.block(x, at.Sight.causal(x))
        return self.head(x), torch.stack([weights])

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.trace(words)[0]

    def attention(self, words: torch.Tensor) -> torch.Tensor:
        """Returns the attention weights of all layers for the given sequences. attnsweep measures from them what each
        head attends to."""
        return self.trace(words)[1]


# A sweep can vary the arguments of the functions in this file, and the parameters that every training has, such as
# init_sigma, optimizer, learning_rate and n_steps. An argument that several functions have is one parameter.
def model(n_words: int = 8, n_tokens: int = 12, d_model: int = 16, layer_norm_eps: float = 1e-5) -> nn.Module:
    return Model(n_words, n_tokens, d_model, layer_norm_eps)


def data(draw: at.Draw, n_words: int, n_tokens: int, batch_size: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws the inputs and targets of one step's batch from the training's own random stream."""
    words = draw.integers(n_words, batch_size, n_tokens)
    before = words.roll(1, dims=1)
    # The first word has no word before it that could be its target. PyTorch's cross-entropy ignores the target -100.
    before[:, 0] = -100
    return words, before


def previous(weights: torch.Tensor) -> torch.Tensor:
    """Returns each head's attention weight on the previous token, averaged over all queries, (layer, head)."""
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).mean((1, 3))


look_back = at.problem(
    "look_back",
    model=model,
    data=data,
    loss="cross_entropy",
    solved="accuracy >= 0.99",
    events={"half": "accuracy >= 0.5"},
    heads={"previous_token": previous},
    defaults={"optimizer": "adam", "learning_rate": 1e-2, "n_steps": 400},
    summary="which word came before?",
)


def sweep() -> at.Sweep:
    """Returns the sweep that `attnsweep run look_back.py` runs: 8 configurations with 4 seeds each."""
    space = {"init_sigma": at.Float(1e-4, 1.0, log=True)}
    return at.Sweep(name="look_back", workload="look_back.py:look_back", space=space, trials=8, replicates=4)


if __name__ == "__main__":
    at.check_workload(look_back(), [look_back.parameters(), look_back.parameters(init_sigma=1e-3)], quick=True)
