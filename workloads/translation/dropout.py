"""Dropout masks, drawn from a training's own streams, so that they depend on its seed and the step alone.

Axes: L lane, B sentence, T token of the source or of the target, D model, R = B T rows.

Source: Srivastava et al. 2014; where it is applied: Vaswani et al. 2017, section 5.4 (each sublayer's output, before it
is added, and the sums of embeddings and positions).
"""

from collections.abc import Mapping

from torch import Tensor

from attnsweep.workloads.engine.contract import Batch, Lanes
from attnsweep.workloads.translation.parameters import TranslationParameters

SITES = {
    "source": "source",
    "encoder_self": "source",
    "encoder_ffn": "source",
    "target": "read",
    "decoder_self": "read",
    "cross": "read",
    "decoder_ffn": "read",
}
"""The places where dropout is applied, and for each the words of the batch that have a row there."""

_VALUES = 2**16
"""The number of values of a random integer: the dropout share is rounded to a multiple of 1 / 65,536."""


def masks(lanes: Lanes[TranslationParameters], step: int, words: Batch) -> Batch:
    """Draws the masks `keep_<site>` (L, B, T, D) of all dropout sites: 0, or a factor that keeps the mean unchanged.

    Without dropout there are no masks.

    Args:
        lanes: The L trainings.
        step: The step that the batch belongs to.
        words: The batch, with `source` and `read`.
    """
    dropped = round(lanes.shared.dropout * _VALUES)
    if not dropped:
        return {}
    drawn: Batch = {}
    for site, word_name in SITES.items():
        shape = (*words[word_name].shape[1:], lanes.shared.d_model)
        is_kept = lanes.streams.integers(f"dropout/{site}", shape, _VALUES, step) >= dropped
        drawn[f"keep_{site}"] = is_kept.to(lanes.dtype) * (_VALUES / (_VALUES - dropped))
    return drawn


def masks_of(batch: Batch) -> Mapping[str, Tensor]:
    """Returns the dropout masks in a batch of one training, (B, T, D) by site. Evaluation batches have none."""
    return {site: batch[f"keep_{site}"] for site in SITES if f"keep_{site}" in batch}


def masked(x_RD: Tensor, masks_BTD: Mapping[str, Tensor], site: str) -> Tensor:
    """Multiplies the rows (R, D) at a dropout site by the site's mask, if there is one."""
    return x_RD * masks_BTD[site].reshape(x_RD.shape) if site in masks_BTD else x_RD
