"""Forecasts how many steps a training needs to leave its initial plateau, the loss at which it starts. See
docs/forecast.md."""
