"""The identity that attention weights of a query sum to 1, and are 0 for keys that a causal mask hides.

Axes of a weight: any leading ones, Q query, K key.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnsweep.workloads.identities.identity import Computed, Error, Identity, Point, largest


@dataclass(frozen=True, kw_only=True)
class AttentionRows(Identity):
    """The attention weights of each query sum to 1, and with a causal mask the weights of later keys are 0.

    Attributes:
        name: The attention layer, for messages.
        weights: Computes the attention weights (..., Q, K) of a module on a batch.
        is_causal: Whether query i may see keys 0 to i only.
    """

    name: str
    weights: Computed
    is_causal: bool = False

    def errors(self, at: Point) -> list[Error]:
        weights = self._weights(at)
        errors = [Error(f"{self.name}: sum", largest(weights.sum(-1) - 1.0))]
        if self.is_causal:
            errors.append(Error(f"{self.name}: later keys", largest(weights.triu(1))))
        return errors

    def reason(self, at: Point) -> str:
        weights = self._weights(at)
        if self.is_causal and largest(weights.triu(1)) > 0.0:
            return f"{self.name}: queries see later keys: the mask multiplies, is transposed, or is missing"
        if largest(weights.sum(-2) - 1.0) < torch.finfo(weights.dtype).eps * weights.shape[-2]:
            return f"{self.name}: the weights of a key sum to 1, not those of a query: the softmax runs over queries"
        return f"{self.name}: the weights of a query do not sum to 1: the softmax does not run over the keys alone"

    def _weights(self, at: Point) -> Tensor:
        with torch.no_grad():
            return self.weights(at.module, at.batch)
