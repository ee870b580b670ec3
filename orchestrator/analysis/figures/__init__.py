"""How all figures look, and what they share: the style sheet, panels, axes, marks, texts."""
