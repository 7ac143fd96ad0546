"""`prebleexp mock`: simulated GPUs that answer as OpenAI-style servers do, in real time.

`cluster` is the simulation, in a clock's time and without sockets; `endpoint` is one GPU's server, `serving` is the
process: clock, ports, and who is late.
"""
