"""How many GPUs a load takes, or how large a load a cluster bears: searches over runs, with intervals."""
