"""The common parts of all figures: the style sheet, panels, axes, marks, texts."""
