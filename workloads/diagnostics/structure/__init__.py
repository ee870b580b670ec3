"""Exact distances of attention matrices to structured families (Conti 2024): diagonal, band, blocks."""

from attnsweep.workloads.diagnostics.structure.blocks import BlockPlacement, best_blocks, distances_to_blocks
from attnsweep.workloads.diagnostics.structure.free_entries import blocks_with_free_entries, support_with_free_entries
from attnsweep.workloads.diagnostics.structure.matrices import checked_attention
from attnsweep.workloads.diagnostics.structure.permutations import PermutationTest, permutation_test
from attnsweep.workloads.diagnostics.structure.supports import (
    band_support,
    distances_to_bands,
    distances_to_diagonal,
)

__all__ = [
    "BlockPlacement",
    "PermutationTest",
    "band_support",
    "best_blocks",
    "blocks_with_free_entries",
    "checked_attention",
    "distances_to_bands",
    "distances_to_blocks",
    "distances_to_diagonal",
    "permutation_test",
    "support_with_free_entries",
]
