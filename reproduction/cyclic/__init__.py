"""The note "Cyclic 4-tensor rotations underly the training of a GPT-style encoder": its formulas compared with
autograd.
"""
