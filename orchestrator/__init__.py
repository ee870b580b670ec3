"""The orchestrator: runs sweeps on Ray or in this process, stores their results, and analyses them."""

if __name__ != "attnsweep.orchestrator":
    raise ImportError("orchestrator: this package is attnsweep.orchestrator; import its names from attnsweep")
