"""What belongs to this paper: its claims and what became of them, and the figures that only its sweeps have."""
