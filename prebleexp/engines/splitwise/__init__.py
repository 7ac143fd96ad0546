"""Splitwise's own simulator, splitwise-sim 8f99e7d: frozen, with a loop and routers of its own (spec:
clusters, 1.4)."""
