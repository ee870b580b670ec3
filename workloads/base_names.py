"""The names of trained weights that other trainings start from.

A name is `<training_id>-<digest>`, where the digest is the first half of the sha256 of the weights' text. So a
parameter with this value identifies the weights to the last bit, wherever they came from. No torch.
"""

import hashlib
import re
from dataclasses import dataclass

NAME = re.compile(r"[0-9a-f]{20}-[0-9a-f]{32}")
HOW_TO_NAME = "a training of another sweep, such as sweeps/first:0/3 (its directory, trial and replicate)"


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedBase:
    """Weights on their way into a sweep directory.

    Attributes:
        name: What the sweep records as the parameter's value.
        origin: What the user gave.
        text: Their content: see `bases.base_text`.
    """

    name: str
    origin: str
    text: str


def base_name(training_id: str, text: str) -> str:
    """The name of the weights with this text."""
    return f"{training_id}-{_digest(text)}"


def is_text_of(name: str, text: str) -> bool:
    """Whether this is the text that a name stands for."""
    return name.partition("-")[2] == _digest(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
