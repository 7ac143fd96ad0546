"""HTTP/1.1 for servers and clients of streams, by callbacks, on asyncio and httptools: what all live commands share.

`server` answers, `client` asks, `sse` reads events of a stream, `places` knows URLs, `loops` runs an event loop.
"""
