"""Agent checkpoints: execution state that an agent keeps for itself, upserted, expiring, private to it (design 06).

`core.py` has every rule, pure; `ids.py` the ids that find their owner; `records.py` the bytes; `authority.py` the handler of the loop;
`rows.py` what lies in its store. No text of a checkpoint is ever evidence: nothing here writes an event.
"""
