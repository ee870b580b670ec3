"""Names trained weights from which other trainings start.

A name is `<training_id>-<digest>`, where the digest is the first half of the sha256 of the weights' text. So a
parameter with this value identifies the weights to the last bit, wherever they came from. This module does not import
torch.
"""

import hashlib
import re
from dataclasses import dataclass

NAME = re.compile(r"[0-9a-f]{20}-[0-9a-f]{32}")
HOW_TO_NAME = "a training of another sweep, such as sweeps/first:0/3 (its directory, trial and replicate)"


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedBase:
    """Trained weights, from which other trainings start, with the name under which a sweep directory stores them.

    Attributes:
        origin: The text by which the user named the training.
        text: The weights as JSON: see `bases.base_text`.
    """

    name: str
    origin: str
    text: str


def base_name(training_id: str, text: str) -> str:
    """Returns the name under which trained weights are stored, `<training_id>-<digest>`. The digest is that of `text`,
    which holds the weights as JSON."""
    return f"{training_id}-{_digest(text)}"


def is_text_of(name: str, text: str) -> bool:
    """Returns whether this JSON text can be the trained weights with the given name: the digest in the name must be
    that of the text."""
    return name.partition("-")[2] == _digest(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
