"""The public simulator, bit for bit, in a loop of its own (spec: engine-as-released). Frozen: nothing here changes with
the general core, of which it uses the prefix cache, the batch and what a router sees."""
