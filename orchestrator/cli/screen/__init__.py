"""The output on a terminal: a sweep's status, a run's summary, a comparison. Also as JSON for scripts."""
