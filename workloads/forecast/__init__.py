"""Forecasts after how many steps a training leaves the loss level of its start: see docs/forecast.md."""
