"""Dropout in translators: what the masks depend on, and what they mask."""

import pytest
import torch

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.translation.corpus import SPECIALS
from attnsweep.workloads.translation.data import training_batches
from attnsweep.workloads.translation.model import TranslationModel
from attnsweep.workloads.translation.translator import SITES, masks
from tests.workloads.translation.small_translation import WORKLOAD, lanes, random_model, small

MASKED = small(dropout=0.3)
N_SPECIALS = len(SPECIALS)


def _batch(step: int = 3, seed: int = 0) -> Batch:
    return {name: value[0] for name, value in WORKLOAD.batch(lanes(MASKED, seed=seed), step).items()}


def test_masks_drop_their_share_and_keep_the_mean() -> None:
    batch = WORKLOAD.batch(lanes(MASKED, MASKED, MASKED, MASKED), 0)
    for site, words in SITES.items():
        mask = batch[f"keep_{site}"]
        assert mask.shape == (*batch[words].shape, MASKED.d_model)
        assert mask.unique().tolist() == [0.0, pytest.approx(1 / 0.7, rel=1e-4)]
        assert (mask == 0).double().mean().item() == pytest.approx(0.3, abs=0.05)


def test_masks_depend_on_seed_and_step_alone() -> None:
    alone, beside = _batch(), WORKLOAD.batch(lanes(small(dropout=0.3, window=1), MASKED, seed=-1), 3)
    in_block = training_batches(lanes(MASKED), range(3, 9))[0]
    for site in SITES:
        name = f"keep_{site}"
        assert torch.equal(alone[name], beside[name][1])
        assert torch.equal(alone[name], in_block[name][0])
        same = torch.equal(alone[name], _batch(seed=1)[name])
        assert not same
    sites = [alone[f"keep_{site}"] for site in ("encoder_self", "encoder_ffn")]
    assert not torch.equal(*sites)
    words = WORKLOAD.batch(lanes(MASKED), 3)
    drawn = [masks(lanes(MASKED), step, words)["keep_source"] for step in (3, 4)]
    assert torch.equal(drawn[0][0], alone["keep_source"])
    assert not torch.equal(*drawn)


def test_there_are_no_masks_without_dropout_nor_in_evaluation() -> None:
    assert not any(name.startswith("keep_") for name in WORKLOAD.batch(lanes(small()), 0))
    assert not any("keep_" in name for name in WORKLOAD.eval_batch(lanes(MASKED)))


def _masked(model: TranslationModel, batch: Batch, *hidden: str) -> torch.Tensor:
    """The answers where these sites are masked whole, and the others not at all."""
    masks = {f"keep_{site}": torch.full_like(batch[f"keep_{site}"], float(site not in hidden)) for site in SITES}
    answers: torch.Tensor = model(batch | masks)
    return answers


@pytest.mark.parametrize("site", ["source", "target"])
def test_masked_embeddings_tell_nothing_of_the_words(site: str) -> None:
    model, batch = random_model(MASKED), _batch()
    words = batch[SITES[site]]
    other = batch | {SITES[site]: words.where(words < N_SPECIALS, N_SPECIALS)}
    assert torch.equal(_masked(model, batch, site), _masked(model, other, site))
    assert not torch.allclose(_masked(model, batch), _masked(model, other))


@pytest.mark.parametrize("site", ["encoder_self", "encoder_ffn", "decoder_self", "cross", "decoder_ffn"])
def test_a_masked_sublayer_adds_nothing(site: str) -> None:
    model, batch = random_model(MASKED), _batch()
    bare = {name: value for name, value in batch.items() if not name.startswith("keep_")}
    assert torch.equal(_masked(model, batch), model(bare))
    hidden = _masked(model, batch, site)
    assert not torch.allclose(hidden, model(bare))
    for name, value in getattr(model.translator, site).named_parameters():
        if name.startswith(("out", "second")):
            value.data.zero_()
    torch.testing.assert_close(hidden, model(bare))
