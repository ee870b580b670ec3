"""Executors carry out the training steps: of compiled blocks of trainings on a CPU, by captured CUDA graphs on a
GPU."""
