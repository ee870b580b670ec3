"""Executors carry out training steps: on a CPU by compiled programs for blocks of trainings, on a GPU by captured CUDA
graphs."""
