"""What takes the steps of a pack: blocks of lanes on a CPU, captured graphs on a GPU."""
