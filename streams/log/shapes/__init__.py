"""Values of the hot path as one regular expression each: their Avro layout and their vocabulary in one pass.

The path of an event reads and writes drafts, commands and attributes some five times. Field by field, through fastavro, a
typed record and the checks of `session.vocabulary`, that costs several times what one match in C does and a record made of
its groups (docs/adr/0014). What has one of these shapes is exactly what fastavro would read and the vocabulary let pass,
and the result is the same. What has not is no mistake yet: every function answers None, and its caller, `streams.log.record`,
takes the long way, which also says what is wrong. Values with another number in front than the current version's take the long
way too; the layouts here are those of the first version, and nothing goes by them once another one is written.

commands, drafts, events, families   one value each; `families` are attributes
patterns                             fields, as the others and the authority's header (`streams.authority.encoding`) have them
"""
