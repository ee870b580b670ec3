"""`attnsweep forecast`: predicts, before a sweep runs, when its trainings leave the initial plateau, and what the sweep
costs."""
