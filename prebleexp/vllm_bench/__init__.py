"""`vllm bench serve` as a command: what its flags ask for, what it measures of a run, and what it writes."""
