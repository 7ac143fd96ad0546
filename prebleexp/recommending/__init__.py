"""What to deploy: which GPUs, how many in a replica, how many replicas, split or whole, which budget of the engine and
which router keep a promise for the least money; and the files that deploy it."""
