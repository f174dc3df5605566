"""The execution graph of a session, as a pure fold over its accepted events.

`items.py` says what stands in it, `fold.py` what each event adds, `memory.py` holds one in memory, `neighbourhood.py`
cuts out what lies around a node. No Kafka, disk, clock or randomness; the same events give the same items.
"""
