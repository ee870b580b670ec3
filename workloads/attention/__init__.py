"""Parts of transformers for workloads, yours included: attention, layers, a block, masks and positions.

The layers are ordinary `nn.Module`s of ONE training; the engine of a sweep stacks the modules of many trainings. Values
that may differ between trainings of one program (epsilon, the scale of the logits) are buffers.
"""
