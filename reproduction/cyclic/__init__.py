"""The note "Cyclic 4-tensor rotations underly the training of a GPT-style encoder": its words, and what it prints."""
