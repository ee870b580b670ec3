"""`attnsweep forecast`: predicts which trainings of a sweep leave their plateau, and what the sweep costs, before it
runs."""
