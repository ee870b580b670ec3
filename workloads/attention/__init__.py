"""Parts of transformers for workloads, yours included: attention, layers, a block, masks and positions.

They are ordinary `nn.Module`s of ONE training. Values that may differ within a pack (epsilon, the scale of the logits)
are buffers.
"""
