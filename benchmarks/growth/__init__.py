"""What grows, and what must not: an authority's rate and cost as its sessions, events, partitions and age grow.

`python -m benchmarks.growth` starts a Kafka of its own, draws each curve in turn, prints a table and writes
build/bench-growth.json. Each point is told in parts of the first of its line.

lines    the curves: sessions, sizes, partitions, authorities
long     ten million events through one authority, with its plot
samples  what a long run looked like: rate, memory, and whether they stayed
feeder   commands for the long run, a bounded way ahead of the authority; a process of its own
plot     the long run as a picture
"""
