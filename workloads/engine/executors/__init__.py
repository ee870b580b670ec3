"""Executors take the steps of a pack: compiled blocks of lanes on a CPU, captured CUDA graphs on a GPU."""
