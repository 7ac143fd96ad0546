"""SGLang's `bench_serving` as a command: what its flags ask for, and what it says of a run."""
