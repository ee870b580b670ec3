"""Quantities that can be measured of a trial, and the objectives of a sweep that are built from them."""

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, Tag

from attnsweep.search_spaces.dimensions import Positional
from attnsweep.search_spaces.model import SpecModel

Direction: TypeAlias = Literal["minimize", "maximize"]


class StuckRate(SpecModel):
    """The rate of trainings in a trial that end stuck."""

    kind: Literal["stuck_rate"] = "stuck_rate"
    direction: Direction = "minimize"

    @property
    def label(self) -> str:
        """The name of the quantity in tables and figures."""
        return self.kind


class Rate(Positional):
    """The rate of trainings in a trial that end with an outcome, `Rate("solved")`, or stuck, `Rate("stuck")`."""

    positional = ("outcome",)

    kind: Literal["rate"] = "rate"
    outcome: str
    direction: Direction = "maximize"

    if TYPE_CHECKING:

        def __init__(self, outcome: str, *, direction: Direction = "maximize") -> None: ...

    @property
    def label(self) -> str:
        """The name of the quantity in tables and figures: `rate of solved`."""
        return f"rate of {self.outcome}"


class LossQuantile(SpecModel):
    """A quantile of `eval_loss` over a trial's trainings. A diverged training counts as the worst finite loss."""

    kind: Literal["loss_quantile"] = "loss_quantile"
    quantile: float = Field(default=0.5, ge=0.0, le=1.0)
    direction: Direction = "minimize"

    @property
    def label(self) -> str:
        """The name in tables and figures: `loss_quantile` for the median, else `loss_quantile 0.9`."""
        return self.kind if self.quantile == 0.5 else f"{self.kind} {self.quantile:g}"


class OnsetQuantile(Positional):
    """A quantile, over a trial's trainings, of the step from which on an outcome held: `OnsetQuantile("solved")`.

    A training that ends with another outcome counts as one in which the outcome never held.
    """

    positional = ("outcome",)

    kind: Literal["onset_quantile"] = "onset_quantile"
    outcome: str
    quantile: float = Field(default=0.5, ge=0.0, le=1.0)
    direction: Literal["minimize"] = "minimize"

    if TYPE_CHECKING:

        def __init__(self, outcome: str, *, quantile: float = 0.5) -> None: ...

    @property
    def label(self) -> str:
        """The name in tables and figures: `onset of solved` for the median, else `onset of solved 0.9`."""
        return f"onset of {self.outcome}" + ("" if self.quantile == 0.5 else f" {self.quantile:g}")


Measured: TypeAlias = StuckRate | Rate | LossQuantile | OnsetQuantile
"""Any quantity that can be measured of a trial."""


def goal_of(objective: Measured) -> str:
    """Formats an objective with its direction, such as `rate of solved, to maximize`."""
    return f"{objective.label}, to {objective.direction}"


def _read(given: object) -> object:
    """Accepts one objective or several. Each is a spec, or the name of a kind, which stands for the kind's defaults.

    A list with one objective becomes that objective.
    """
    if isinstance(given, str):
        return {"kind": given}
    if not isinstance(given, list | tuple):
        return given
    several = tuple(map(_read, given))
    return several[0] if len(several) == 1 else several


def _tag(given: object) -> str:
    return _SEVERAL if isinstance(given, tuple) else _ONE


# The tags of the union are blank strings, because `first_mistake` leaves blank tags out of error texts.
_ONE, _SEVERAL = "", " "
_Objective: TypeAlias = Annotated[Measured, Field(discriminator="kind")]
Objective: TypeAlias = Annotated[
    Annotated[_Objective, Tag(_ONE)] | Annotated[tuple[_Objective, ...], Field(min_length=2), Tag(_SEVERAL)],
    Discriminator(_tag),
    BeforeValidator(_read),
]
"""The objective of a sweep: one quantity, or several, whose values are reported to the sampler for each trial."""
