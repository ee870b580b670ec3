"""Executors carry out training steps: of compiled blocks of trainings on a CPU, by captured CUDA graphs on a GPU."""
