"""What the service does on this machine, beside what the machine and its Kafka could do at best.

`python -m benchmarks` starts one local Kafka and real role processes, measures in turn, prints a table and writes
build/bench.json. Figures are recorded, never asserted; what is claimed are ratios within one run. docs/performance.md
says what each line means.

results     what a measurement is, over several runs; table and file
measures    the lines that can be chosen, and what each needs measured before it
bench       Kafka, topics of one's own, role processes and what they cost
traffic     commands as they lie in Kafka, made quickly
limits      raw produce, raw consume, one raw transaction
authority   events a second through one authority, straight through Kafka
deciding    sessions in a log, and passes of commands to them: how `authority` and `growth` measure
steady      the steady part of a pass, and what an event costs in it
store       what a row costs in the local store, by thread time
restore     an empty store until its authority decides again
append      single and batched appends over HTTP
reads       point reads over HTTP
claims      claims over HTTP by many workers
checkpoints creation and listing of checkpoints over HTTP
snapshots   retained bytes up and down
exports     the export and the bundle of a session over HTTP, and how fast they are checked
history     a claim in a long session, and its conversation
workers     Runs to claim, and grants, for these four
transfers   large bodies over HTTP
serving     all roles up, load upon them, and what each process spent
httpload    the client, as a process of its own
machine     what these figures were taken on
profiling   where the time of one process goes, as a flame graph
flames      that graph as text
traceable   what lets it look into a process without being root
growth      curves over sessions, sizes, partitions, processes and ten million events: a command of its own
peers       the plain fold in other engines and in our loop: a command of its own
"""
