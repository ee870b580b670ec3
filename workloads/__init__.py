"""Workloads: the training problems, and the engine that trains many of them in one program."""

if __name__ != "attnsweep.workloads":
    raise ImportError("workloads cannot be imported by this name: import attnsweep, or attnsweep.workloads")
