"""The rules of a session by family: may this draft be accepted, given what is known?

A rule answers with the draft, completed by what only the authority knows, or with a refusal. It changes nothing.
"""
