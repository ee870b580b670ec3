"""System P for other tools: the sweep whose trainings they get too, and these trainings in plain PyTorch.

Light to import, as imports are a part of the time that benchmarks measure. Syne Tune runs this file once per trial.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

N_CATEGORIES, N_POSITIONS = 10, 20
_WORST = 1e12


def sweep_of_system_p(n_steps: int, ranges: dict[str, tuple[float, float]], **others: Any) -> Any:
    """A sweep of trainings that all take `n_steps`.

    Args:
        n_steps: Of a training.
        ranges: From where to where each other parameter is drawn, on a logarithmic scale.
        others: The other fields of `Sweep`: sampler, trials, replicates, ...
    """
    from attnsweep.search_spaces import Float, Sweep

    return Sweep(
        name="bench",
        workload="category_pairs",
        space={
            "n_steps": n_steps,
            "n_categories": N_CATEGORIES,
            "n_positions": N_POSITIONS,
            "stop_when_solved": False,
            **{name: Float(low=low, high=high, log=True) for name, (low, high) in ranges.items()},
        },
        **others,
    )


class PlainTrainings:
    """System P in plain PyTorch, gradient descent on the population loss: one training, or some seeds in a batch."""

    def __init__(self, batch: tuple[int, ...], init_sigma: float, learning_rate: float) -> None:
        import torch

        torch.set_num_threads(1)
        shapes = [(*batch, size, size) for size in (N_POSITIONS, N_CATEGORIES)]
        self._q, self._v = ((init_sigma * torch.randn(shape, dtype=torch.float64)).requires_grad_() for shape in shapes)
        self._optimizer, self._is_batch = torch.optim.SGD([self._q, self._v], lr=learning_rate), bool(batch)

    def advance(self, n_steps: int) -> None:
        """Takes all seeds on by some steps."""
        for _ in range(n_steps):
            self._optimizer.zero_grad()
            self._losses().sum().backward()
            self._optimizer.step()

    def levels(self) -> list[float]:
        """The loss per position of each seed, from the lowest; that of a diverged one is high and finite."""
        levels = self._losses().detach().sum(-1) / (N_POSITIONS - 1)
        found: list[float] = (
            levels.nan_to_num(nan=_WORST, posinf=_WORST).clamp(max=_WORST).reshape(-1).sort()[0].tolist()
        )
        return found

    def _losses(self) -> "Tensor":
        """By seed and position."""
        N, v, columns = N_CATEGORIES, self._v, self._q[..., 1:]

        def total(values: "Tensor", dim: int | tuple[int, int]) -> "Tensor":
            # A view would cost a single training a tenth of its time.
            return values.sum(dim)[:, None] if self._is_batch else values.sum(dim)

        p, s, n = columns.diagonal(dim1=-2, dim2=-1), columns.sum(-2), columns.square().sum(-2)
        b = total(v, (-2, -1)) / N
        a = total(v.diagonal(dim1=-2, dim2=-1), -1) - b
        B = total(v.sum(-1).square(), -1) / N
        A = total(v.square(), (-2, -1)) - B
        losses: Tensor = 1 + (-2 * a * p - 2 * b * s + A * n + B * s.square()) / N
        return losses


def level_after(init_sigma: float, learning_rate: float, n_steps: int) -> float:
    """The level that one training ends at."""
    training = PlainTrainings((), init_sigma, learning_rate)
    training.advance(n_steps)
    return training.levels()[0]


def run_tune(train_one: Callable[[dict[str, Any]], None], space: dict[str, Any], callback: Any, **config: Any) -> Any:
    """The results of Ray Tune on this machine's Ray; `config` as `TuneConfig` takes it."""
    from ray import tune

    # Otherwise each trial starts a process and imports torch, which is many times slower.
    tune_config = tune.TuneConfig(reuse_actors=True, **config)
    place = str(Path("tune").resolve())
    run_config = tune.RunConfig(name="bench", storage_path=place, verbose=0, callbacks=[callback])
    results = tune.Tuner(train_one, param_space=space, tune_config=tune_config, run_config=run_config).fit()
    assert not results.errors
    return results


def start_ray(**named: Any) -> None:
    """A Ray of our own, without words."""
    import logging
    import warnings

    warnings.simplefilter("ignore")
    import ray

    ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, **named)


def _report_to_syne_tune() -> None:
    from syne_tune import Reporter

    parser = argparse.ArgumentParser()
    for name, kind in (("init_sigma", float), ("learning_rate", float), ("n_steps", int)):
        parser.add_argument(f"--{name}", type=kind)
    options, _ = parser.parse_known_args()
    Reporter()(level=level_after(options.init_sigma, options.learning_rate, options.n_steps))


if __name__ == "__main__":
    _report_to_syne_tune()
