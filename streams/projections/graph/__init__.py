"""The execution graphs as a table: folded from `sessions.events` by the shared loop, whose store is the table and whose
changelog, `sessions.graph`, anyone may load.
"""
