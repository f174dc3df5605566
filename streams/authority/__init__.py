"""The one writer of sessions: folds commands into events, in the transaction of `streams.loop`."""
