"""Who holds data, and how each follows what is retained no longer (design 04, "One driver").

A holder reads `sessions.retention`, drops what an order names, and says on `sessions.confirmations` how far it has come. Two kinds of
holders are processes of ours: those that keep secrets in memory (`caches.py`), and the stores of partitions, which outlive the process
that has them (`orders.py` for what they have to do, `partitions.py` for what they say). `confirmed.py` hears
what all of them have said; `compaction.py` tells how long what they deleted may lie in Kafka's files.
"""
