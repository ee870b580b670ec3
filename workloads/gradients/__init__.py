"""Are the gradients that trainings follow those of their losses? Checks of any workload, in float64 (docs/gradients.md).

Each check compares two ways to the same number: the engines with plain autograd, autograd with differences of the loss,
and autograd with what the workload declares (`attnsweep.workloads.identities`).
"""
