"""The same plain fold in four engines, on the same broker and the same input: Kafka Streams, Quix Streams, Faust, our loop.

`python -m benchmarks.peers` (`make bench-peers`) builds what is missing, measures in turn, prints a table and writes
build/bench-peers.json. README.md says what each engine does, with every setting.

fold            the fold itself, for the engines in Python; knows the standard library only
check           the same fold computed independently, and the rate from the broker's stamps; pure
source          the input: made from a seed, with what each key must come to
engines         what is started for each engine, with its settings
environments    virtual environments and the Maven build, made on demand
run             one engine over the input: watched, stopped, checked
restore         a million keys from the changelog
ours            our loop, as a process
quix, faust_    the engines in environments of their own; each is run as a script
kafka-streams   the Maven project
"""
