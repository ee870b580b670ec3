"""A report with what a page may have to show, hostile texts too; and its reading in a browser."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attnsweep.orchestrator.ledger.query import query_all
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.report.page import write_report
from attnsweep.search_spaces import Categorical
from tests.end_to_end.chromium import Browser
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows

WIDTHS = {"desk": 1280, "phone": 390}
ERRORS = ("ValueError: no", "RuntimeError: " + "m" * 3000)
HOSTILE = "<img src=x onerror=alert(1)></script><script>x()</script>"


def write_page(folder: Path) -> str:
    """The page's address."""
    trials = [
        trial_rows(
            at,
            ["solved", ("degenerate_zero", "marginal", "runaway", "plateau")[at % 4], "diverged", "failed"],
            param_init_sigma=(5e-4, 5e-3, 5e-2, 0.5)[at % 4],
            param_learning_rate=(5e-3, 5e-2)[at // 4],
            param_variant=("positions_only", HOSTILE)[at % 2],
            outcome_detail=HOSTILE,
            level_zero=8.0,
            level_mean=7.5,
            loss_level=0.7,
            error=f"Traceback\n  {'m' * 3000}\n{ERRORS[at % 2]}",
        )
        for at in range(8)
    ]
    home = folder / ("a long folder " * 8) / "sweep"
    spec = small_sweep("read", trials=8, description="word" * 100)
    spec = spec.but(space={**spec.space, "variant": Categorical(choices=("positions_only", HOSTILE))})
    return write_report([sweep_on_disk(home, spec, *trials).place], None).resolve().as_uri()


@contextmanager
def opened(browser: Browser, page: str) -> Iterator[Ledger]:
    """The page, drawn, in the browser; and its ledger."""
    browser.log("browser")
    browser.open(page)
    browser.find("//section[contains(@class, 'explore')][@aria-busy='false']")
    yield Ledger(Path(page.removeprefix("file://").replace("%20", " ")).parents[1])
    assert browser.log("browser") == []


def answers(ledger: Ledger, sql: str) -> list[dict[str, Any]]:
    return list(query_all([ledger], sql).to_pylist())


def texts(browser: Browser, selector: str) -> list[str]:
    return list(
        browser.evaluate(f"[...element.querySelectorAll({selector!r})].map(each => each.textContent)", "//body")
    )
