"""Runs that are no simulation: sockets, wall clocks, real endpoints. It needs `pip install 'prebleexp[live]'`."""
