"""Commands beside sweeps: corpora from real text, scores of a user's own attention matrices, the doctor."""
