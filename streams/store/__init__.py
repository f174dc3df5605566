"""The only door to RocksDB: data and the offsets it stands for, written in one batch."""
