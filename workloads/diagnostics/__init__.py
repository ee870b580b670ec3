"""From tensors to labels: roles of heads, distances to structures, certificates, and escapes from plateaus."""
