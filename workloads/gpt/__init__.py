"""Minimal GPTs: when does attention begin to select, and when do induction heads emerge? Source: Boue 2025."""

from attnsweep.workloads.gpt.parameters import GPTParameters
from attnsweep.workloads.gpt.workload import GPTWorkload

__all__ = ["GPTParameters", "GPTWorkload"]
