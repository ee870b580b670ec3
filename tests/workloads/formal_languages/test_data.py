"""The data of a pack: strings that depend only on seed, step and length, whatever else is drawn."""

import pytest
import torch

from attnsweep.workloads.engine.contract import Lanes, Training
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.formal_languages.data import Lengths, evaluation_batch, random_texts, training_batches
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults

WORKLOAD = FormalLanguages()


def _lanes(*lengths: int, **values: Value) -> Lanes:  # type: ignore[type-arg]
    settings = {"eval_batch_size": 50, "test_batch_size": 20} | values
    trainings = [
        Training(defaults(WORKLOAD, train_length=length, **settings), seed) for seed, length in enumerate(lengths)
    ]
    return Lanes(trainings, torch.device("cpu"))


def test_a_string_ends_at_its_own_length() -> None:
    length = torch.tensor([3, 40, 64])
    text = random_texts(Streams(torch.tensor([1, 2, 3])), "x", Lengths(length, 64), 500, range(2))
    assert text.shape == (3, 2, 500, 64)
    for lane, n in enumerate(length.tolist()):
        assert not text[lane, :, :, n:].any()
        assert (text[lane, :, :, :n].double().mean((0, 1)) - 0.5).abs().max() < 0.08


@pytest.mark.parametrize("language", ["first", "parity"])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_block_of_steps_is_its_steps(language: str, batch_size: int) -> None:
    lanes = _lanes(10, 10, language=language, batch_size=batch_size)
    block = training_batches(lanes, range(7, 60))
    assert len(block) == 53
    for step in (7, 8, 7 + len(block) - 1):
        alone = WORKLOAD.batch(lanes, step)
        for name, value in block[step - 7].items():
            assert torch.equal(value, alone[name]), name
    assert not torch.equal(block[0]["feature"], block[1]["feature"])


def test_the_data_of_a_training_do_not_depend_on_its_pack() -> None:
    """Twenty lanes are drawn in three parts."""
    whole = evaluation_batch(_lanes(*range(1, 21)))
    for lane in (0, 9, 19):
        training = _lanes(*range(1, 21)).trainings[lane]
        alone = evaluation_batch(Lanes([training], torch.device("cpu")))
        assert alone.keys() == whole.keys()
        for name, value in alone.items():
            assert torch.equal(value[0], whole[name][lane]), name
