"""What a policy may answer beside a GPU."""

HOLD = -2
"""ask again when a step of a GPU ends, and so at every first token"""
REFUSE = -3
"""do not serve it"""
WITHDRAWN = -4
"""no policy's: whoever is decided on was lost meanwhile"""
