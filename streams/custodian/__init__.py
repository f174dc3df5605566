"""What is due in sessions: leases that lapse, waits that expire. It asks the authority, which alone decides.

`timers.py` says what is armed and how it looks in the changelog, `asking.py` what is asked and what an answer means,
`custodian.py` is the handler of the loop.
"""
