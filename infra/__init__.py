"""Where does it run? Cluster files and the entry of `ray submit`. No training imports anything from here."""
