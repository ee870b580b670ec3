"""The orchestrator: runs sweeps on Ray or in this process, stores their results, and analyses them."""

if __name__ != "attnsweep.orchestrator":
    raise ImportError("orchestrator cannot be imported by this name: import attnsweep, or attnsweep.orchestrator")
