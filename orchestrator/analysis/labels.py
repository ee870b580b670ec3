"""What things are called in figures and reports: parameters with their symbols, outcomes with what they mean."""

from collections.abc import Mapping
from types import MappingProxyType

from attnsweep.orchestrator.analysis.intervals import Rate

_PARAMETERS: Mapping[str, str] = MappingProxyType(
    {
        "init_sigma": "initialization $σ$",
        "learning_rate": "learning rate $η$",
        "layer_norm_eps": "layer-norm $ε$ (inside the root)",
        "attention_scale": "attention scale (factor of the logits)",
        "window": "band half-width $w$ (tokens)",
        "num_pos": "rare-token columns",
        "n_categories": "categories $N$",
        "n_positions": "text length $M$ (tokens)",
        "n_steps": "optimizer steps",
        "batch_size": "batch size (texts)",
        "train_length": "training length $n$ (symbols)",
    }
)

OUTCOME_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "solved": "fell below the loss that counts as solved",
        "degenerate_zero": "stuck at a zero of the gradient that is no solution: dead attention, or a constant output",
        "marginal": "stuck at a reference level above the solution: the predictor uses part of the input",
        "runaway": "descends a valley at infinity that never reaches the solution",
        "plateau": "none of these; with the detail “moving” the loss still falls, and the run was too short or is slow",
        "overfit": "fits its sample and not fresh data",
        "diverged": "the loss turned non-finite or far too large",
        "failed": "raised an error; left out of all rates but the shares by outcome",
    }
)
"""In the order of every table and figure of a report. Those that count as stuck: `STUCK`."""

_NARROW = 0.02

STUCK = ("degenerate_zero", "marginal", "runaway")


def parameter_label(name: str) -> str:
    """A parameter as an axis names it: words, the literature's symbol for Matplotlib to slant, unit."""
    return _PARAMETERS.get(name, name.replace("_", " "))


def plain_label(name: str) -> str:
    """The same as text."""
    return parameter_label(name).replace("$", "")


def share_label(rate: Rate) -> str:
    """`0.25 [0.19, 0.32]`, or `-` where nothing was counted."""
    if rate.share is None or rate.low is None or rate.high is None:
        return "-"
    digits = decimals(rate.low, rate.high)
    return f"{rate.share:.{digits}f} [{rate.low:.{digits}f}, {rate.high:.{digits}f}]"


def decimals(low: float, high: float) -> int:
    """How many an interval of shares is told with: those that do not make its ends alike."""
    return 2 if high - low >= _NARROW else 3


def outcome_order(outcome: str) -> tuple[int, str]:
    """Sorts outcomes as `OUTCOME_MEANINGS` has them, others last."""
    known = list(OUTCOME_MEANINGS)
    return (known.index(outcome) if outcome in known else len(known), outcome)


def clipped(text: object, most: int) -> str:
    """One line of at most so many characters, with an ellipsis where it was longer."""
    line = " ".join(str(text).split())
    return line if len(line) <= most else line[: most - 1] + "…"
