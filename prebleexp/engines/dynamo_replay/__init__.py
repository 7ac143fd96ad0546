"""Dynamo's offline replay with prefill and decode workers, ai-dynamo 1.6.1: frozen, with a loop of its own (spec:
clusters, 1.2 and 1.5)."""
