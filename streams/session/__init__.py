"""PURE. What a session is and what may happen to it: no Kafka, disk, clock or randomness."""
