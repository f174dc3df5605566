"""Values of the hot path as one regular expression each: their Avro layout and their vocabulary in one pass.

The path of an event reads and writes drafts, commands and attributes some five times. Field by field, through fastavro, a
typed record and the checks of `session.vocabulary`, that costs several times what one match in C does and a record made of
its groups (docs/adr/0014). What has one of these shapes is exactly what fastavro would read and the vocabulary let pass,
and the result is the same. What has not is no mistake yet: every function answers None, and `streams.log.record`, the
only caller, takes the long way, which also says what is wrong. Values of an older or newer schema take the long way too.
"""
