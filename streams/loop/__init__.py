"""One loop for every writer: consume a batch, decide, produce, commit in one transaction, then write RocksDB.

`handler.py` says what a writer supplies, `step.py` what it works on, `restore.py` how a store becomes current again,
`loop.py` is the transaction, top to bottom.
"""
