"""The projector's process towards the gateways: internal reads of the partitions that it owns."""
