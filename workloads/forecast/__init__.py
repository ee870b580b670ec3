"""How long a training stays where it starts, before it is trained: see docs/forecast.md."""
