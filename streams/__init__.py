"""The pipeline: a pure core that decides, and a shell that moves bytes. No HTTP here.

Read in the order an event meets the modules: `session/` (what is allowed), `loop/` (one transaction),
`authority/` (the one writer of sessions), `projections/` (views of the log), `query/` (reads of views),
`custody/` (what opens content). `log/` is the only door to Kafka, `store/` the only door to RocksDB.
"""
