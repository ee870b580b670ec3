"""Checks of the gradients of any workload, in float64: are they those of its loss? See docs/gradients.md.

Each check compares two ways to one number: the engines with plain autograd, autograd with differences of the loss, and
autograd with what the workload declares (`attnsweep.workloads.identities`).
"""
