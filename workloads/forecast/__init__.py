"""Forecasts how many steps a training takes to leave its starting level: see docs/forecast.md."""
