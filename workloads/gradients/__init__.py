"""Checks in float64 whether the engine's gradients of a workload are the gradients of its loss. See docs/gradients.md.

A check computes the same number in two ways: by an engine and by plain autograd; by autograd and by differences of the
loss; or by autograd and by an identity (an equation for gradients) that the workload declares
(`attnsweep.workloads.identities`).
"""
