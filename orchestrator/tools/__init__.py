"""Commands other than running sweeps: prepare a corpus, score the attention matrices of a user's model, check the
installation."""
