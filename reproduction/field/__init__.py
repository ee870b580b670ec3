"""The problems that the field studies, ours beside the published."""
