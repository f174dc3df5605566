"""Taps: live tables for analytics teams, folded from `sessions.events` by Faust. Needs the extra `taps`.

    tables.py      what is counted, and how; pure
    view.py        the same as JSON, for whoever asks
    clients.py     the Kafka settings of this installation, for aiokafka
    consumer.py    how Faust reads: committed records, from where the tables stand
    app.py         the Faust app: one agent, one page
    run.py         the role: runs the app, watches that it gets on, ends the process where it does not

Rules: a tap writes nothing, to no topic and no disk; its tables live in memory and are rebuilt from the topic by
whoever starts it; what it has counted it never counts again; it is disposable, so a doubt ends the process.

The only importer of faust, aiokafka, mode and aiohttp.
"""
