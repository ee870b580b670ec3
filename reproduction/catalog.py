"""What can be reproduced, one line each. Light to import: what a reproduction computes with is loaded when it runs."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from attnsweep.reproduction.comparison import Comparison


@dataclass(frozen=True, kw_only=True, slots=True)
class Reproduction:
    """One figure or table.

    Attributes:
        name: On the command line.
        title: What it shows.
        source: Paper and section.
        cost: What it takes, on 2 CPU cores.
        module: In this package, with a function `reproduce(directory, console) -> Comparison`.
    """

    name: str
    title: str
    source: str
    cost: str
    module: str

    def load(self) -> "Callable[[Path, Console], Comparison]":
        """The function that does it, and writes its sweeps and figures into the directory given."""
        module = importlib.import_module(f"{__package__}.{self.module}")
        return cast("Callable[[Path, Console], Comparison]", module.reproduce)


_SHIN = "Shin & Matzinger 2025"
_CHIANG = "Chiang & Cholak 2022"

REPRODUCTIONS = (
    Reproduction(
        name="shin-fig1",
        title="the learned k^t q of solution 2 beside q*",
        source=f"{_SHIN}, section 4.1, Figure 1",
        cost="3 min",
        module="shin_fig1",
    ),
    Reproduction(
        name="shin-fig2",
        title="log-MSE of the combined model's four flavours",
        source=f"{_SHIN}, section 4.1, Figure 2",
        cost="5 min",
        module="shin_fig2",
    ),
    Reproduction(
        name="shin-fig3",
        title="attention weights of the four flavours",
        source=f"{_SHIN}, section 4.1, Figure 3",
        cost="5 min",
        module="shin_fig3",
    ),
    Reproduction(
        name="shin-zeros",
        title="equations 3.7-3.9, 3.18, 3.33, 3.54, the line before 3.71; stationary families found by search",
        source=f"{_SHIN}, section 3",
        cost="1 min",
        module="shin_zeros",
    ),
    Reproduction(
        name="shin-handmade",
        title="the hand-programmed solutions 1-3, printed and mended",
        source=f"{_SHIN}, sections 2.1-2.3",
        cost="10 s",
        module="shin_handmade",
    ),
    Reproduction(
        name="chiang-fig2",
        title="cross-entropy of the exact transformers for FIRST and PARITY by length",
        source=f"{_CHIANG}, section 4, Figure 2",
        cost="1 min",
        module="chiang_fig2",
    ),
    Reproduction(
        name="chiang-fig3",
        title="exact PARITY when the weight that counts is off",
        source=f"{_CHIANG}, section 4, Figure 3",
        cost="1 min",
        module="chiang_fig3",
    ),
    Reproduction(
        name="chiang-fig4",
        title="FIRST learned at lengths 10 to 300, tested at 1,000, with and without log n",
        source=f"{_CHIANG}, section 5.3, Figure 4",
        cost="2 min",
        module="chiang_fig4",
    ),
    Reproduction(
        name="chiang-fig4-long",
        title="the same for 1,000 epochs instead of 100",
        source=f"{_CHIANG}, section 5.3, Figure 4",
        cost="15 min",
        module="chiang_fig4_long",
    ),
    Reproduction(
        name="chiang-parity",
        title="PARITY by the same set-up",
        source=f"{_CHIANG}, section 3.1",
        cost="5 min",
        module="chiang_parity",
    ),
    Reproduction(
        name="chiang-table1",
        title="translators trained on short sentences, tested on long ones, with and without log-length scaling",
        source=f"{_CHIANG}, section 6, Table 1",
        cost="10 min",
        module="chiang_table1",
    ),
    Reproduction(
        name="conti-table6",
        title="distance of eight heads to structured families, w = 3, num_pos = 2",
        source="Conti 2024, table 6",
        cost="1 min",
        module="conti_table6",
    ),
    Reproduction(
        name="conti-table7",
        title="distance of eight heads to structured families, w = 10, num_pos = 1",
        source="Conti 2024, table 7",
        cost="1 min",
        module="conti_table7",
    ),
)


def find_reproduction(name: str) -> Reproduction:
    """The reproduction of this name.

    Raises:
        UserError: If there is none.
    """
    for each in REPRODUCTIONS:
        if each.name == name:
            return each
    names = ", ".join(each.name for each in REPRODUCTIONS)
    raise UserError("NAME", given=name, expected=f"one of {names}", fix="see `attnsweep reproduce`")
