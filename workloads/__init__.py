"""Workloads: the training problems, and the engine that trains many of them in one program."""

if __name__ != "attnsweep.workloads":
    raise ImportError("workloads: this package is attnsweep.workloads; import its names from attnsweep")
