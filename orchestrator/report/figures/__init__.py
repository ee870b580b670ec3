"""Figures that only a report has: one panel each, so that a phone can stack them."""
