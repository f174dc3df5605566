"""What this release supports, each exact tuple with its evidence: signed observations of journeys, and the catalogue made of them.

"A vendor UI, tool name, or self-attested feature list is not proof" (Session execution graph, adapter fidelity). So a row tells
what a journey has shown of one exact tuple, lately, under a trusted signature, and `unobserved` where nothing has.

`capabilities.py` says what there is to prove, `statement.py` what one observation says, `journeys.py` writes one, `catalogue.py`
reads them all, `rows.py` tells of them, `support.py` keeps them up to date for a gateway.
"""
