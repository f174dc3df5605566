"""Crypto-shredding: what is sealed in the log can be opened only with secrets that stand outside it and can be destroyed.

Read `keyring.py` first: what a secret is and what every keyring promises. `sqlite_keyring.py` is the keyring of one
machine, `group_commit.py` the writer under it, `local_keys.py` the key file that wraps its workspace keys. `sealing.py`
turns JSON text into sealed content and back, and says why where it cannot; `dead_letters.py` does so for records that
could not be read, `sealed_stream.py` for bytes of any length, whose secrets are in `snapshot_secrets.py`. The only importer
of `cryptography` and `zstandard`.
"""
