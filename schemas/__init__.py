"""What a record means, for ever: the Avro schemas of every value on every topic, and the way from bytes to dicts.

    *.avsc               values of topics; attributes/ within events, state/ within the authority's changelog
    registry.json        the number of each published file, and its digest
    catalog.py           number -> schema, and how a schema is published
    codec.py             bytes <-> dicts; the one importer of fastavro
    compatibility.py     may one version be read as another
    upcasts.py           what an older record means today

docs/wire-format.md says the bytes in words, for those who read the topics without this code.
"""
