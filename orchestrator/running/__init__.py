"""Runs sweeps: draws configurations, trains them and commits their rows; stops, resumes and retries."""
