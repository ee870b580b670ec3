"""The JAX side of `vs_jax.py`: steps of SGD of all trainings as one compiled program, as a good engineer writes it.

Each side draws its own batches from its own generator; the losses compared are those on one batch of attnsweep's.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from attnsweep.workloads.engine.contract import Lanes
from attnsweep.workloads.engine.pack import Pack
from shared.shapes import Shape

jax.config.update("jax_enable_x64", True)

Weights = dict[str, Any]
Loss = Callable[[Weights, Any], Any]
_TOLERANCE = {"float64": 1e-9, "float32": 1e-3}


def advance_of(name: str, shape: Shape, size: int) -> Callable[[int], object]:
    """A function that takes n steps of `size` trainings, after a check that both sides have the same losses."""
    loss, draw = LOSSES[name]
    start = _as_jax(shape.pack(size))
    _check_equal(shape, size, loss, start)
    step = _stepper(loss, draw, shape.settings[0]["learning_rate"])
    state = {"weights": start, "key": jax.random.split(jax.random.key(0), size)}

    def advance(n: int) -> None:
        state["weights"], state["key"] = step(state["weights"], state["key"], n)
        jax.block_until_ready(state["weights"])

    return advance


def _stepper(
    loss: Loss, draw: Callable[[Any], Any] | None, rate: float
) -> Callable[[Weights, Any, int], tuple[Weights, Any]]:
    """`n` steps of SGD of all trainings, as one compiled program."""
    gradient = jax.vmap(jax.grad(loss))

    def one(_: int, carried: tuple[Weights, Any]) -> tuple[Weights, Any]:
        weights, keys = carried
        if draw is None:
            batch = jnp.zeros(len(keys))
        else:
            keys, used = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
            batch = jax.vmap(draw)(used)
        slopes = gradient(weights, batch)
        return jax.tree.map(lambda weight, slope: weight - rate * slope, weights, slopes), keys

    step: Callable[[Weights, Any, int], tuple[Weights, Any]] = jax.jit(
        lambda weights, keys, n: jax.lax.fori_loop(0, n, one, (weights, keys))
    )
    return step


def _as_jax(pack: Pack[Any]) -> Weights:
    """The starting weights of a pack, (L, ...) by name."""
    _, state = pack.final_state(np.arange(len(pack.result().n_steps)))
    weights = {name for name, value in state.items() if value.is_floating_point() and value.ndim > 1}
    return {name: jnp.asarray(state[name].numpy()) for name in weights}


def _check_equal(shape: Shape, size: int, loss: Loss, start: Weights) -> None:
    """The two sides compute the same loss of the same weights on the same batch."""
    trainings = shape.trainings(size)
    drawn = shape.workload.batch(Lanes(trainings, torch.device("cpu")), 0)
    batch = {name: jnp.asarray(value.numpy()) for name, value in drawn.items()}
    theirs = np.asarray(jax.vmap(loss)(start, batch or jnp.zeros(size)))
    pack = Pack(shape.workload, trainings)
    pack.advance(1, n_probes=1)
    ours = pack.result().evidence.metrics["loss"][:, 0]
    tolerance = _TOLERANCE[trainings[0].parameters.dtype]
    assert np.allclose(theirs, ours, rtol=tolerance), (theirs[:3], ours[:3])


def _loss_of_system_p(weights: Weights, _: Any) -> Any:
    """The population loss: docs/notes/2026-11-21-theory.md, system P."""
    q, v = weights["q_MK"], weights["v_NN"]
    n = v.shape[0]
    a, b = jnp.trace(v) - v.sum() / n, v.sum() / n
    row_sums = v.sum(1)
    B = jnp.square(row_sums).sum() / n
    A = jnp.square(v).sum() - B
    losses = 1 + (-2 * a * jnp.diagonal(q) - 2 * b * q.sum(0) + A * jnp.square(q).sum(0) + B * jnp.square(q.sum(0))) / n
    return losses.sum()


def _segments(key: Any) -> dict[str, Any]:
    """16 sequences of 16 tokens, each a random segment of 2 to 8 tokens repeated; all but the first one counts."""
    of_words, of_lengths = jax.random.split(key)
    words = jax.random.randint(of_words, (16, 17), 0, 16)
    length = jax.random.randint(of_lengths, (16, 1), 2, 9)
    place = jnp.arange(17)
    token = jnp.take_along_axis(words, place % length, axis=1)
    counts = (place[1:] >= length).astype(jnp.float32)
    return {"token": token[:, :-1], "target": token[:, 1:], "weight": counts / counts.sum()}


def _loss_of_gpt(weights: Weights, batch: dict[str, Any]) -> Any:
    """The cross-entropy in nats, the mean over the tokens that count."""
    token = batch["token"]
    T, D = token.shape[1], weights["token.weight"].shape[1]
    x = weights["token.weight"][token] + weights["position.weight"][:T]
    seen = jnp.tril(jnp.ones((T, T), bool))
    for block in ("blocks.0", "blocks.1"):
        h = _normed(weights, f"{block}.attention_norm", x)
        q, k, v = (_linear(weights, f"{block}.attention.{part}", h) for part in ("query", "key", "value"))
        logits = jnp.where(seen, q @ k.mT / jnp.sqrt(D).astype(q.dtype), -jnp.inf)
        x = x + _linear(weights, f"{block}.attention.out", jax.nn.softmax(logits, axis=-1) @ v)
        h = jax.nn.relu(_linear(weights, f"{block}.ffn.first", _normed(weights, f"{block}.ffn_norm", x)))
        x = x + _linear(weights, f"{block}.ffn.second", h)
    log_p = jax.nn.log_softmax(_linear(weights, "head", _normed(weights, "last_norm", x)), axis=-1)
    told = jnp.take_along_axis(log_p, batch["target"][..., None], axis=-1)[..., 0]
    return -(told * batch["weight"]).sum()


def _linear(weights: Weights, name: str, x: Any) -> Any:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def _normed(weights: Weights, name: str, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / jnp.sqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
    return scaled * weights[f"{name}.gain_D"] + weights[f"{name}.bias_D"]


LOSSES: dict[str, tuple[Loss, Callable[[Any], Any] | None]] = {
    "system P, float64": (_loss_of_system_p, None),
    "induction": (_loss_of_gpt, _segments),
}
"""By shape: the loss of a training's batch, and how one is drawn; `None` if the loss is of the population."""
