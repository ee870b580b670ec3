"""The problems that the field studies, their published numbers beside ours."""
