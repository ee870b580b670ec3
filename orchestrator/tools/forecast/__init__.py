"""`attnsweep forecast`: predicts, before a sweep runs, which of its trainings leave their plateau, and what the sweep
costs."""
