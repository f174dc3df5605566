"""The REST gateway: parses, authenticates, names the command, waits for its outcome, reads from the owners.

`run.py` composes it, `app.py` assembles the routes, `endpoint.py` is what every request goes through.
"""
