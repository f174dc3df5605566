"""The edge: from a principal's request to a sealed command in the log, and back to its outcome. No HTTP here.

The gateway and the direct importer share it: it names commands, replaces outside identifiers by pseudonyms, seals
content, and waits for outcomes. Nothing beyond it sees a person's words or names.
"""
