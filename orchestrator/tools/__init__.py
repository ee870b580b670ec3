"""Commands other than running sweeps: preparing corpora, scoring a user's attention matrices, checking the
installation, forecasts."""
