"""What a policy may answer beside a GPU, and what a gateway does with who comes to it."""

HOLD = -2
"""ask again when a step of a GPU ends, and so at every first token"""
REFUSE = -3
"""do not serve it"""
WITHDRAWN = -4
"""no policy's: whoever is decided on was lost meanwhile"""

PASSES, WAITS, TURNED_AWAY = range(3)
"""a gateway's: a router is asked about it now, as where there is no gateway; it waits, or comes again; it comes no
more"""
