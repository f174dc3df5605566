"""What is due in sessions: leases that lapse, waits that expire, what is erased, checkpoints that have expired. It asks the authority,
which alone decides, and removes uploads and texts.

`timers.py` and `rows.py` say what is kept and how it looks in the changelog, `armed.py` changes it. `asking.py` has what is asked and what
an answer means. `following.py` follows orders to erase, `backlog.py` knows how far the log went when they came. `destroying.py` hands on
what is to be removed and tells of what is, `removing.py` removes it in a thread. `custodian.py` is the handler of the loop.
"""
