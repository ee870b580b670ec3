"""Workloads (training problems), and the engine that trains many trainings of one workload in a single program."""

if __name__ != "attnsweep.workloads":
    raise ImportError("workloads cannot be imported by this name: import attnsweep, or attnsweep.workloads")
