"""What a policy may answer beside a GPU."""

HOLD = -2
"""ask again when something ends"""
REFUSE = -3
"""do not serve it"""
WITHDRAWN = -4
"""no policy's: whoever is decided on was lost meanwhile"""
