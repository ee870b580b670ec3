"""What each attention head of a trained model looks at on one sentence. Needs torch alone.

Workloads do not import this: how heads are shown must not change the code that a training is recorded with.
"""

from attnsweep.workloads.head_maps.known import head_maps
from attnsweep.workloads.head_maps.maps import LayerMaps, SentenceMaps

__all__ = ("LayerMaps", "SentenceMaps", "head_maps")
