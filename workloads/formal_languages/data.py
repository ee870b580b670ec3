"""Random strings with labels, for several steps at a time. Axes: L lane, S step, B string, N position."""

from typing import NamedTuple

import torch
from torch import Tensor

from attnsweep.workloads.engine.contract import Batch, Lanes
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.formal_languages.language import Tokens, count_ones, tokenize
from attnsweep.workloads.formal_languages.parameters import FormalLanguagesParameters

LanguageLanes = Lanes[FormalLanguagesParameters]

_GPU_LANES, _CPU_LANES = 128, 8
"""For how many trainings strings are drawn in one call, on a GPU and on a CPU. They bound memory; 128 take a GPU as
long as 8."""


class Lengths(NamedTuple):
    """Each training's length of strings, (L,) int64, and the largest: to read that would wait for the device."""

    of_lane: Tensor
    longest: int


def training_batches(lanes: LanguageLanes, steps: range) -> list[Batch]:
    drawn = _labelled(lanes, "batch", _own_lengths(lanes), lanes.shared.batch_size, steps)
    by_step = [value.movedim(1, 0).contiguous().unbind() for value in drawn.values()]
    return [dict(zip(drawn, values, strict=True)) for values in zip(*by_step, strict=True)]


def evaluation_batch(lanes: LanguageLanes) -> Batch:
    """Held-out strings of the training length and, as `<length>/...`, of each test length."""
    return _strings(lanes, "eval", _own_lengths(lanes), lanes.shared.eval_batch_size) | strings_of_test_lengths(lanes)


def strings_of_test_lengths(lanes: LanguageLanes, step: int = 0) -> Batch:
    """Strings of each test length for the probe at `step`, as `<length>/...`."""
    shared = lanes.shared
    batch: Batch = {}
    for length in shared.test_lengths:
        lengths = Lengths(torch.full((len(lanes.trainings),), length, device=lanes.device), length)
        strings = _strings(lanes, f"test/{length}", lengths, shared.test_batch_size, step)
        batch |= {f"{length}/{name}": value for name, value in strings.items() if name != "odds"}
    return batch


def batch_for_heads(lanes: LanguageLanes, n_strings: int) -> Batch:
    """The strings, of the training length, on which heads are scored."""
    return _strings(lanes, "heads", _own_lengths(lanes), n_strings)


def tokens_of(batch: Batch, test_length: int | None = None) -> Tokens:
    """One training's strings of a test length; `None` for the training length."""
    prefix = "" if test_length is None else f"{test_length}/"
    return Tokens(batch[f"{prefix}feature"], batch[f"{prefix}log_count"], batch[f"{prefix}log_n"])


def _own_lengths(lanes: LanguageLanes) -> Lengths:
    longest = max(training.parameters.train_length for training in lanes.trainings)
    return Lengths(lanes.tensor("train_length", torch.int64), longest)


def _strings(lanes: LanguageLanes, stream: str, lengths: Lengths, n_strings: int, step: int = 0) -> Batch:
    all_lanes, steps = torch.arange(len(lanes.trainings), device=lanes.device), range(step, step + 1)
    parts = [
        _labelled(lanes.select(chunk), stream, Lengths(lengths.of_lane[chunk], lengths.longest), n_strings, steps)
        for chunk in torch.split(all_lanes, _CPU_LANES if lanes.device.type == "cpu" else _GPU_LANES)
    ]
    return {name: torch.cat([part[name] for part in parts])[:, 0] for name in parts[0]}


def _labelled(lanes: LanguageLanes, stream: str, lengths: Lengths, n_strings: int, steps: range) -> Batch:
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
    """Bits, bool (L, S, n_strings, longest), false beyond a string's end."""
    length_L, longest = lengths
    is_inside = torch.arange(longest, device=length_L.device) < length_L.view(-1, 1, 1, 1)
    return streams.bits(name, n_strings, longest, steps) & is_inside
