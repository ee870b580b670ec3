"""Published numbers of the field's problems, beside ours: one file each, named for the problem."""
