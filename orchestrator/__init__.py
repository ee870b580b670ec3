"""Who runs what, when, and what survives?"""

if __name__ != "attnsweep.orchestrator":
    raise ImportError("orchestrator: this package is attnsweep.orchestrator; import its names from attnsweep")
