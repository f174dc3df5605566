"""Agent checkpoints over REST and MCP: a contract of its own (page 06), beside the rest of the gateway.

`router.py` takes the requests of its paths, `endpoint.py` is what each goes through, `operations.py` is what may be done,
without HTTP. `js.py` reads and writes JSON as JavaScript does, since a state's hash depends on it.
"""
