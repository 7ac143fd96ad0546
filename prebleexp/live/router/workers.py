"""A router's servers, listed and changed while it runs: what is below `/workers`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from prebleexp.errors import InvalidInput
from prebleexp.live.http import pages
from prebleexp.live.http.calls import TimedOut
from prebleexp.live.http.exchange import Exchange
from prebleexp.live.http.places import origin
from prebleexp.live.router.upstreams import Stage, Upstream


class Workers:
    """`host`: where the router listens. `administered`: they may be changed; `fixed`: none may be added. `changed` is
    called when one no longer gets requests."""

    def __init__(
        self,
        upstreams: Sequence[Upstream],
        host: str,
        administered: bool,
        fixed: bool,
        changed: Callable[[Upstream], None],
    ) -> None:
        self._upstreams, self._host, self._changed = upstreams, host, changed
        self._administered, self._fixed = administered, fixed

    def __call__(self, exchange: Exchange) -> None:
        if exchange.method == "GET":
            exchange.respond(200, json.dumps([one.about() for one in self._upstreams]).encode())
            return
        if not self._administered:
            exchange.fail(403, "workers are changed from this machine alone: admin=true allows it to all")
            return
        why = pages.refuses(exchange, self._host)
        if why is not None:
            exchange.fail(403, why)
            return
        try:
            asked = json.loads(exchange.body or b"{}")
            self._change(exchange, exchange.method, str(asked["url"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            exchange.fail(400, 'the body must be as {"url": "http://127.0.0.1:8001"}')
        except InvalidInput as error:
            exchange.fail(400, str(error))

    def _change(self, exchange: Exchange, method: str, url: str) -> None:
        place = origin("url", url)
        found = next((one for one in self._upstreams if one.origin == place), None)
        if method == "POST" and exchange.path == "/workers":
            empty = next((one for one in self._upstreams if one.stage is Stage.EMPTY), None)
            if self._fixed:
                exchange.fail(409, "kv=events is of the servers that were there from the start: none can be added")
                return
            if found is not None or empty is None:
                room = f"there is room for {len(self._upstreams)} servers (slots=)"
                exchange.fail(409, f"{url} is there already" if found else room)
                return
            empty.origin, empty.stage, empty.fails, found = place, Stage.STARTING, 0, empty
        elif found is None:
            exchange.fail(404, f"{url} is no worker")
            return
        elif method == "POST" and exchange.path == "/workers/drain":
            found.stage = Stage.DRAINING
            self._changed(found)
        elif method == "DELETE":
            found.stage, found.origin = Stage.EMPTY, None
            for passage in list(found.flying):
                passage.cut(TimedOut("it was removed"))
            self._changed(found)
        else:
            exchange.fail(405, "POST /workers, POST /workers/drain and DELETE /workers are known")
            return
        exchange.respond(200, json.dumps(found.about()).encode())
