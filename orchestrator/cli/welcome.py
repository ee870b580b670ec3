"""What `attnsweep` prints without arguments: what a newcomer wants first."""

WELCOME = """\
attnsweep trains thousands of small attention models and says how many get stuck, and why.

  attnsweep run quickstart --local    train 1,024 models in about half a minute; the summary says how they ended
  attnsweep report DIR                one HTML page with the figures of a sweep; `run` prints DIR
  attnsweep docs tutorial             from this first sweep to a model of your own, in an hour
  attnsweep new-workload my_task      write a training problem of your own that runs as it is
  attnsweep doctor                    check this machine, or a cluster, before a large sweep

All commands: attnsweep --help. One command: attnsweep run --help. Any word: attnsweep docs WORD."""
