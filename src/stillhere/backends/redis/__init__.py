"""The Redis/Valkey store: records, streams and scripts of one queue in one hash slot."""
