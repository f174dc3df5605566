"""The only door to Kafka (`confluent_kafka`): topics, clients, transactions, readers, positions, owners."""
