"""`attnsweep forecast`: predicts when a sweep's trainings leave the initial plateau, and what the sweep costs.

A sweep is split into cases: sets of trainings that differ only in init_sigma and seed.
"""

import itertools
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from attnsweep.orchestrator.analysis.rates.intervals import wilson
from attnsweep.orchestrator.running.engine_choice import engine_for
from attnsweep.orchestrator.running.entry import resolved
from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.run_records import Promise, remember_promise
from attnsweep.orchestrator.tools.forecast.price import Price, price_of
from attnsweep.search_spaces.dimensions import Categorical, Conditional, Dimension, Float, Scalar, Varied
from attnsweep.search_spaces.suggestion import undrawn, values_of
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.forecast.forecast import Escape, EscapeForecast, forecast_escapes
from attnsweep.workloads.interventions import INTERVENTION
from attnsweep.workloads.parameters import TrainingParameters
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.user_code import UserCode, users_code

_HALF_WIDTH = 0.02
_MOST_SEEDS = 2**14
_SCALE = "init_sigma"
_POINTS = 5
_MOST_CASES = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One part of a forecast: a set of trainings that differ only in `init_sigma` (scale of the initial weights) and
    seed.

    Attributes:
        chosen: The values of the parameters that vary besides init_sigma; for a range its middle.
        parameters: The parameters of the trainings, without an intervention.
        sigmas: The values of init_sigma, falling; for a range five values from its upper to its lower end.
    """

    chosen: Mapping[str, Scalar]
    parameters: TrainingParameters
    sigmas: tuple[float | None, ...]


def cases_of(spec: Sweep, workload: Workload[Any]) -> tuple[list[Case], bool]:
    """Returns the cases of a sweep: all combinations of its parameters' choices that the workload accepts. Also returns
    whether any combination has an intervention (a change to a running training).

    A range counts as one choice, its middle. The cases are without interventions.

    Raises:
        SpecError: If no combination can be trained.
    """
    axes = {name: _values(dimension) for name, dimension in spec.drawn().items()}
    axes[_SCALE] = axes.get(_SCALE, [None])[:1]
    cases: list[Case] = []
    refusal, has_interventions = None, False
    for point in itertools.product(*axes.values()):
        drawn = dict(zip(axes, point, strict=True))
        while missing := undrawn(spec, drawn):
            drawn |= {name: _values(dimension)[0] for name, dimension in missing.items()}
        values = values_of(spec, drawn)
        has_interventions |= values.get(INTERVENTION) is not None
        try:
            parameters = workload.parameters.resolve(values | {INTERVENTION: None})
        except SpecError as error:
            refusal = error
            continue
        varies = [*spec.varied(), *spec.conditional()]
        chosen = {name: values[name] for name in varies if name in values and name not in (_SCALE, INTERVENTION)}
        case = Case(chosen=chosen, parameters=parameters, sigmas=_sigmas(spec, parameters, values))
        if case not in cases:
            cases.append(case)
    if not cases and refusal is not None:
        raise refusal
    return cases, has_interventions


def _values(dimension: Varied) -> list[Scalar]:
    """Returns all choices of a parameter; for a range, only its middle."""
    if isinstance(dimension, Categorical):
        return list(dimension.choices)
    return dimension.model_copy(update={"points": 1}).grid()


def _sigmas(spec: Sweep, parameters: TrainingParameters, values: Mapping[str, Scalar]) -> tuple[float | None, ...]:
    dimension: Dimension | None = spec.space.get(_SCALE, parameters.init_sigma)
    if isinstance(dimension, Conditional):
        branch = dimension.branch(values.get(dimension.on))
        dimension = parameters.init_sigma if branch is None else branch
    if isinstance(dimension, Float):
        sigmas = dimension.model_copy(update={"points": _POINTS}).grid()
    elif isinstance(dimension, Categorical):
        sigmas = list(dimension.choices)
    else:
        sigmas = [parameters.init_sigma]
    numbers = {float(sigma) for sigma in sigmas if isinstance(sigma, int | float)}
    return (*sorted(numbers, reverse=True), *([None] if None in sigmas else []))


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The forecast of a sweep: the steps at which its trainings leave the initial plateau, and the sweep's cost.

    Attributes:
        sweep: The sweep's name.
        escapes: Each forecast case with its escape times.
        n_cases: The number of cases of the sweep, of which at most eight are forecast.
        leaves_out_interventions: Whether the sweep has interventions, which the forecast cases are without.
        price: The cost of the sweep.
        engine: The engine that the price applies to.
        seconds: The time that the forecast took.
    """

    sweep: str
    escapes: list[tuple[Case, EscapeForecast]]
    n_cases: int
    leaves_out_interventions: bool
    price: Price
    engine: str
    seconds: float

    def to_json(self) -> str:
        """Returns the forecast as one line of JSON, for scripts."""
        content = {
            "sweep": self.sweep,
            "n_cases": self.n_cases,
            "leaves_out_interventions": self.leaves_out_interventions,
            "cases": [_case_content(*case) for case in self.escapes],
            "price": asdict(self.price) | {"engine": self.engine},
            "seconds": self.seconds,
        }
        return json.dumps(content, allow_nan=False)

    def print(self, console: Console) -> None:
        """Prints when trainings leave the initial plateau, for each set of trainings that differ only in init_sigma and
        seed. Then prints what the sweep costs."""
        lines = [self.sweep]
        for case, escapes in self.escapes:
            lines += _case_lines(case, escapes)
        if self.n_cases > len(self.escapes):
            lines.append(f"{self.n_cases - len(self.escapes)} more cases: choose one with --set")
        if self.leaves_out_interventions:
            lines.append(
                "interventions are not forecast: the steps to leave are those of trainings without; the price is for"
                " all trainings"
            )
        for line in (*lines, *_price_lines(self.price, self.engine), f"forecast in {self.seconds:.0f} s"):
            console.print(line, soft_wrap=True, markup=False)


def forecast(
    spec: Sweep, code: UserCode | None, n_seeds: int, console: Console, say: Callable[[str], None]
) -> Forecast:
    """Forecasts a sweep from short trial trainings. Stores the predicted cost, so that the sweep's summary can compare
    it with the actual cost.

    Args:
        code: The user's code that replaces the file that the spec names.
        n_seeds: The number of seeds of the pilots (short trial trainings), for each value of init_sigma.
        console: Prints a hint if compiled blocks would be faster but cannot be compiled.
        say: Called with a message when a part begins.

    Raises:
        UserError: If the sweep cannot be trained.
    """
    started = time.perf_counter()
    workload = load_workload(spec.workload, code)
    spec, _ = resolved(spec, workload)
    cases, has_interventions = cases_of(spec, workload)
    escapes = []
    with training_settings(), users_code(workload.name, "a workload that trains", "see attnsweep.check_workload"):
        for number, case in enumerate(forecast_cases := cases[:_MOST_CASES], 1):
            say(f"pilots of case {number} of {len(forecast_cases)} ...")
            escapes.append((case, forecast_escapes(workload, case.parameters, case.sigmas, range(n_seeds))))
    say("price ...")
    engine = engine_for(spec, workload, "auto", console).engine
    price = price_of(spec, workload, engine)
    promise = Promise(
        seconds=price.core_seconds,
        seconds_low=price.core_seconds_low,
        seconds_high=price.core_seconds_high,
        is_bound=price.is_bound,
        n_rows=sum(price.n_rows.values()),
        n_bytes=price.n_bytes,
    )
    remember_promise(spec, Environment.current(workload, engine).id, promise)
    return Forecast(
        sweep=spec.name,
        escapes=escapes,
        n_cases=len(cases),
        leaves_out_interventions=has_interventions,
        price=price,
        engine=engine,
        seconds=time.perf_counter() - started,
    )


def seeds_for(share: float) -> int:
    """Returns how many trainings are needed to estimate the share of stuck trainings within ±0.02 (95% Wilson
    interval), if the share is about `share`."""
    low, high = 1, _MOST_SEEDS
    while low < high:
        middle = (low + high) // 2
        least, most = wilson(share, middle)
        low, high = (low, middle) if most - least <= 2 * _HALF_WIDTH else (middle + 1, high)
    return low


def _case_content(case: Case, forecast: EscapeForecast) -> dict[str, object]:
    return {
        "chosen": dict(case.chosen),
        "law": forecast.law,
        "threshold": forecast.threshold,
        "orders": [asdict(order) for order in forecast.orders],
        "escapes": [
            {
                "init_sigma": escape.init_sigma,
                "measured": escape.is_measured,
                "n_left_out": escape.n_left_out,
                "median": escape.quantile(0.5),
                "q90": escape.quantile(0.9),
                "share_within_n_steps": escape.share,
                "n_steps": escape.n_steps,
                "n_steps_for_95": _whole(escape.quantile(0.95)),
                "seeds_for_0.02": seeds_for(escape.share),
            }
            for escape in forecast.escapes
        ],
    }


def _case_lines(case: Case, forecast: EscapeForecast) -> list[str]:
    values = {name: f"{value:.3g}" if isinstance(value, float) else value for name, value in case.chosen.items()}
    chosen = " ".join(f"{name}={value}" for name, value in values.items()) or "one case"
    lines = [f"{chosen}: {forecast.law}"]
    if forecast.orders:
        orders = ", ".join(f"{order.parameter} {_or_dash(order.order, '.2f')}" for order in forecast.orders)
        lines.append(f"  orders at the smallest init_sigma: {orders}")
    if forecast.threshold is not None:
        lines.append(
            f"  threshold: norms change the orders at init_sigma = sqrt(layer_norm_eps) = {forecast.threshold:.2g}"
        )
    header = "  init_sigma  steps to leave: median      90%  leave within n_steps  n_steps for 95%  seeds for +-0.02"
    return [*lines, header, *(_escape_line(escape) for escape in forecast.escapes)]


def _escape_line(escape: Escape) -> str:
    sigma = "default" if escape.init_sigma is None else f"{escape.init_sigma:.3g}"
    median, q90 = (_or_dash(escape.quantile(share), ".0f") for share in (0.5, 0.9))
    n_steps_95 = _whole(escape.quantile(0.95))
    remarks = "" if escape.is_measured else "  by law"
    remarks += f"  {escape.n_left_out} left out: their pilots took too long" if escape.n_left_out else ""
    return (
        f"  {sigma:>10}  {median:>22} {q90:>8}  {f'{escape.share:.0%} of {escape.n_steps}':>20}"
        f"  {_or_dash(n_steps_95, 'd'):>15}  {seeds_for(escape.share):>16}{remarks}"
    )


def _price_lines(price: Price, engine: str) -> list[str]:
    most = "at most " if price.is_bound else ""
    rows = ", ".join(f"{n:,} of {table}" for table, n in price.n_rows.items())
    lines = [
        f"price: {price.n_trainings:,} trainings, {most}{price.core_seconds:.2g} s"
        f" ({price.core_seconds_low:.2g} to {price.core_seconds_high:.2g}) of training on one core"
        f" ({price.core_seconds / 3600:.2g} core-hours, engine {engine}); rows: {rows}; {price.n_bytes / 1e6:.3g} MB"
    ]
    if price.n_shapes > 1:
        lines.append(
            f"  {price.n_measured} of {price.n_shapes} shapes measured; a training of the dearest costs"
            f" {price.spread:.1f} times one of the cheapest"
        )
    return lines


def _whole(steps: float | None) -> int | None:
    return None if steps is None else math.ceil(steps)


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"
