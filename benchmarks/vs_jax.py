"""CPU time of a training's step: attnsweep against a loop that a good engineer writes in JAX.

    pip install jax
    python benchmarks/vs_jax.py [--rounds 3] [--sizes 16 64 256] [--out benchmarks/vs_jax.json]

The JAX side is `jit` of a `fori_loop` of SGD steps over `vmap` of the gradient: one program for all trainings, as in
attnsweep, without probes, outcomes, rows or resumption. Both sides start from the same weights, and their losses after
the same steps are compared before anything is timed. One thread each, in turns, in CPU seconds. Two problems:

- `system P`: the reduced system of docs/zeros.md in closed form, N = 10, M = 20, float64.
- `induction`: the two-block GPT of `attnsweep run induction`, d = 32, batch 16, float32. Each side draws its own
  batches from its own generator, as both would; the losses compared are those on one batch of attnsweep's.
"""

import os

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from harness import main, step_seconds

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.compiling.programs import Programs
from attnsweep.workloads.engine.contract import Lanes, Training, Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.gpt import GPTWorkload
from attnsweep.workloads.testing import defaults

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    sys.exit("vs_jax: got no jax, expected it beside attnsweep; fix: pip install jax")

jax.config.update("jax_enable_x64", True)

Weights = dict[str, Any]
Loss = Callable[[Weights, Any], Any]
_LEARNING_RATE = 1e-2
_CPU = torch.device("cpu")
_TOLERANCE = {"float64": 1e-9, "float32": 1e-3}

SYSTEM_P = {"variant": "positions_only", "n_categories": 10, "n_positions": 20, "n_steps": 10**6}
INDUCTION = {
    **{"task": "induction", "n_words": 16, "n_tokens": 16, "n_blocks": 2, "d_model": 32, "d_ffn": 32},
    **{"batch_size": 16, "eval_batch_size": 32, "dtype": "float32", "n_steps": 10**6},
}


def measure(*, rounds: int = 3, sizes: tuple[int, ...] = (16, 64, 256)) -> dict[str, Any]:
    """Measures both problems."""
    torch.set_num_threads(1)
    rows = [
        *(_row("system P", CategoryPairs(), SYSTEM_P, _loss_of_system_p, None, size, rounds) for size in sizes),
        *(_row("induction", GPTWorkload(), INDUCTION, _loss_of_gpt, _segments, size, rounds) for size in sizes),
    ]
    return {"jax": jax.__version__, "rows": rows}


def _row(
    name: str,
    workload: Workload[Any],
    settings: dict[str, Any],
    loss: Loss,
    draw: Callable[[Any], Any] | None,
    size: int,
    rounds: int,
) -> dict[str, Any]:
    """Microseconds of CPU for a step of one training, of each side."""
    settings = settings | {"optimizer": "sgd", "learning_rate": _LEARNING_RATE, "stop_when_solved": False}
    parameters = defaults(workload, **settings)
    trainings = [Training(parameters, seed) for seed in range(size)]
    packs = {
        "blocks": Pack(workload, trainings, programs=Programs()),
        "vmapped": Pack(workload, trainings),
    }
    start = _as_jax(Pack(workload, trainings))
    step = _stepper(loss, draw)
    _check_equal(workload, trainings, loss, start)
    state = {"weights": start, "key": jax.random.split(jax.random.key(0), size)}

    def advance_jax(n: int) -> None:
        state["weights"], state["key"] = step(state["weights"], state["key"], n)
        jax.block_until_ready(state["weights"])

    seconds = step_seconds({"jax": advance_jax} | {each: pack.advance for each, pack in packs.items()}, rounds)
    taken = {side: round(1e6 * each / size, 2) for side, each in seconds.items()}
    ours = min(taken["blocks"], taken["vmapped"])
    return {"problem": name, "trainings": size, "microseconds": taken, "times_jax": round(taken["jax"] / ours, 2)}


def _stepper(loss: Loss, draw: Callable[[Any], Any] | None) -> Callable[[Weights, Any, int], tuple[Weights, Any]]:
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
        return jax.tree.map(lambda weight, slope: weight - _LEARNING_RATE * slope, weights, slopes), keys

    step: Callable[[Weights, Any, int], tuple[Weights, Any]] = jax.jit(
        lambda weights, keys, n: jax.lax.fori_loop(0, n, one, (weights, keys))
    )
    return step


def _as_jax(pack: Pack[Any]) -> Weights:
    """The starting weights of a pack, (L, ...) by name."""
    _, state = pack.final_state(np.arange(len(pack.result().n_steps)))
    weights = {name for name, value in state.items() if value.is_floating_point() and value.ndim > 1}
    return {name: jnp.asarray(state[name].numpy()) for name in weights}


def _check_equal(workload: Workload[Any], trainings: list[Training[Any]], loss: Loss, start: Weights) -> None:
    """The two sides compute the same loss of the same weights on the same batch."""
    batch = {name: jnp.asarray(value.numpy()) for name, value in workload.batch(Lanes(trainings, _CPU), 0).items()}
    theirs = np.asarray(jax.vmap(loss)(start, batch or jnp.zeros(len(trainings))))
    pack = Pack(workload, trainings)
    pack.advance(1, n_probes=1)
    ours = pack.result().evidence.metrics["loss"][:, 0]
    tolerance = _TOLERANCE[trainings[0].parameters.dtype]
    assert np.allclose(theirs, ours, rtol=tolerance), (theirs[:3], ours[:3])


def _loss_of_system_p(weights: Weights, _: Any) -> Any:
    """The population loss: docs/theory.md, system P."""
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


if __name__ == "__main__":
    main(measure)
