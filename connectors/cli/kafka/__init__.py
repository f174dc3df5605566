"""A local Apache Kafka from Maven's jars: one node or three, for the demo, `up`, tests and CI.

`jars` brings the files, `properties` holds the broker settings with their reasons, `probe` asks a broker who is there,
`cluster` starts, stops and harms nodes.
"""

from connectors.cli.kafka.cluster import LocalKafka

__all__ = ["LocalKafka"]
