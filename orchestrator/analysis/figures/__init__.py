"""The common parts of all figures: style sheet, panels, axes, marks and texts."""
