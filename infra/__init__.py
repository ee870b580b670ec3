"""Where does it run? Cluster files and the entry for `ray submit`; nothing here is imported by a training."""
