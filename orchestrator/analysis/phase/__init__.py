"""Phase diagrams: where in the plane of two parameters trainings are stuck."""
