"""Commands besides sweeps: preparing corpora, scoring a user's attention matrices, the doctor, forecasts."""
