"""look_back: for each word, predict the word before it. Replace the model and the data with your own.

Everything here is written for ONE training; the engine trains many of them in one program.
"""

import torch
from torch import nn

import attnsweep as at


# A sweep can vary the arguments of the functions in this file, and the parameters that every training has, such as
# init_sigma, optimizer, learning_rate and n_steps. An argument that several functions have is one parameter.
def model(n_words: int = 8, n_tokens: int = 12, d_model: int = 16, layer_norm_eps: float = 1e-5) -> nn.Module:
    """Returns a causal transformer of one block. Any other module that reads the inputs of `data` will do."""
    return at.Transformer(n_words, n_tokens, n_blocks=1, d_model=d_model, layer_norm_eps=layer_norm_eps)


def data(draw: at.Draw, n_words: int, n_tokens: int, batch_size: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws the inputs and targets of one step's batch from the training's own random stream."""
    words = draw.integers(n_words, batch_size, n_tokens)
    before = words.roll(1, dims=1)
    # The first word has no word before it that could be its target. PyTorch's cross-entropy ignores the target -100.
    before[:, 0] = -100
    return words, before


look_back = at.problem(
    "look_back",
    model=model,
    data=data,
    loss="cross_entropy",
    solved="accuracy >= 0.99",
    events={"half": "accuracy >= 0.5"},
    heads=("previous_token",),
    defaults={"optimizer": "adam", "learning_rate": 1e-2, "n_steps": 400},
    summary="which word came before?",
)


def sweep() -> at.Sweep:
    """Returns the sweep that `attnsweep run look_back.py` runs: 8 configurations with 4 seeds each."""
    space = {"init_sigma": at.Float(1e-4, 1.0, log=True)}
    return at.Sweep(name="look_back", workload="look_back.py:look_back", space=space, trials=8, replicates=4)


if __name__ == "__main__":
    at.check_workload(look_back(), [look_back.parameters(), look_back.parameters(init_sigma=1e-3)], quick=True)
