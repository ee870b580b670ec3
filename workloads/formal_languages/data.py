"""Random strings with their labels: training batches, drawn for several steps at once, and evaluation batches.

Axes: L lane, S step, B string, N position.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attnsweep.workloads.engine.contract import Batch, Lanes
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.formal_languages.parameters import FormalLanguagesParameters
from attnsweep.workloads.formal_languages.tokens import Tokens, count_ones, tokenize

LanguageLanes = Lanes[FormalLanguagesParameters]

_STEPS_AT_ONCE = 64
"""Steps drawn at once, which spreads the fixed cost of a draw over 64 steps."""
_LANES_AT_ONCE, _ON_A_CPU = 128, 8
"""Lanes drawn at once, which bounds the memory of long strings. A GPU takes as long for 8 as for 128."""


class Lengths(NamedTuple):
    """How long each lane's strings are.

    Attributes:
        of_lane: (L,) int64.
        longest: The longest; given apart, because reading it from the tensor would wait for the device.
    """

    of_lane: Tensor
    longest: int


def training_batches(lanes: LanguageLanes, steps: range) -> list[Batch]:
    """The strings of the first of these steps, one batch per step."""
    drawn = _labelled(lanes, "batch", _own_lengths(lanes), lanes.shared.batch_size, steps[:_STEPS_AT_ONCE])
    by_step = [value.movedim(1, 0).contiguous().unbind() for value in drawn.values()]
    return [dict(zip(drawn, values, strict=True)) for values in zip(*by_step, strict=True)]


def evaluation_batch(lanes: LanguageLanes) -> Batch:
    """Strings of training length, and strings of each test length under the names `<length>/...`."""
    return _strings(lanes, "eval", _own_lengths(lanes), lanes.shared.eval_batch_size) | strings_of_test_lengths(lanes)


def strings_of_test_lengths(lanes: LanguageLanes, step: int = 0) -> Batch:
    """Strings of each test length, drawn for the probe at this step."""
    shared = lanes.shared
    found: Batch = {}
    for length in shared.test_lengths:
        lengths = Lengths(torch.full((len(lanes.trainings),), length, device=lanes.device), length)
        strings = _strings(lanes, f"test/{length}", lengths, shared.test_batch_size, step)
        found |= {f"{length}/{name}": value for name, value in strings.items() if name != "odds"}
    return found


def looked_at_batch(lanes: LanguageLanes, n_strings: int) -> Batch:
    """Strings of training length on which heads are scored."""
    return _strings(lanes, "heads", _own_lengths(lanes), n_strings)


def tokens_of(batch: Batch, test_length: int | None = None) -> Tokens:
    """The strings of a training's batch, of training length or of a test length."""
    of = "" if test_length is None else f"{test_length}/"
    return Tokens(batch[f"{of}feature"], batch[f"{of}log_count"], batch[f"{of}log_n"])


def _own_lengths(lanes: LanguageLanes) -> Lengths:
    longest = max(training.parameters.train_length for training in lanes.trainings)
    return Lengths(lanes.tensor("train_length", torch.int64), longest)


def _strings(lanes: LanguageLanes, stream: str, lengths: Lengths, n_strings: int, step: int = 0) -> Batch:
    """`_labelled` at one step, without the axis of steps; draws a few lanes at a time."""
    every, steps = torch.arange(len(lanes.trainings), device=lanes.device), range(step, step + 1)
    parts = [
        _labelled(lanes.select(some), stream, Lengths(lengths.of_lane[some], lengths.longest), n_strings, steps)
        for some in torch.split(every, _ON_A_CPU if lanes.device.type == "cpu" else _LANES_AT_ONCE)
    ]
    return {name: torch.cat([part[name] for part in parts])[:, 0] for name in parts[0]}


def _labelled(lanes: LanguageLanes, stream: str, lengths: Lengths, n_strings: int, steps: range) -> Batch:
    """Random strings as tokens, (L, S, B, ...), with their labels.

    `sign` is +1 for strings of the language and -1 for others; `odds` is the share of the language among strings with
    the same number of 1s.
    """
    language = lanes.shared.of
    text_LSBN = random_texts(lanes.streams, stream, lengths, n_strings, steps)
    length_LSB = lengths.of_lane.view(-1, 1, 1).expand(text_LSBN.shape[:3])
    tokens = tokenize(language, text_LSBN, length_LSB, lanes.shared.representation)
    labelled = {
        "feature": tokens.feature_BTF,
        "log_count": tokens.log_count_BT,
        "log_n": tokens.log_n[..., 0],
        "sign": torch.where(language.contains(text_LSBN, length_LSB), 1.0, -1.0),
    }
    odds = language.odds_given_ones(count_ones(text_LSBN), length_LSB)
    if odds is not None:
        labelled["odds"] = odds
    return {name: value.to(lanes.dtype) for name, value in labelled.items()}


def random_texts(streams: Streams, name: str, lengths: Lengths, n_strings: int, steps: range) -> Tensor:
    """(L, S, B, N) bool, fair bits, with N the longest of the lanes' lengths; false beyond a lane's own length.

    Args:
        streams: The streams of the L trainings.
        name: The name of the stream.
        lengths: Those of the strings.
        n_strings: B, the strings per step.
        steps: The S steps.
    """
    length_L, longest = lengths
    is_inside = torch.arange(longest, device=length_L.device) < length_L.view(-1, 1, 1, 1)
    return streams.bits(name, n_strings, longest, steps) & is_inside
