"""The driver of retention: what is erased or over, in one order that every holder of data follows (design 04).

What it keeps for itself is `schemas/custody/entry`, on `custody.state`; what it tells, rows of `sessions.retention`.
"""
