"""A policy as a proxy before OpenAI-style servers (`prebleexp route`).

`deciding` asks it and tells it, `prompts` and `caches` say what it knows of prompts and of KV, `recording` writes that
down; `upstreams` says who is there, `passing` brings one request to one of them and its answer back, `proxy` is what
clients see.
"""
