"""On the path of a role that is to be profiled: lets any process of the same user attach to it.

Where Yama guards ptrace (Ubuntu: `kernel.yama.ptrace_scope` 1), only ancestors may, and py-spy is a sibling. Python imports
a module of this name before anything else. Without Yama the call is refused, and not needed.
"""

import ctypes
import sys

if sys.platform == "linux":
    _SET_PTRACER, _ANYBODY = 0x59616D61, ctypes.c_ulong(-1)
    ctypes.CDLL(None).prctl(_SET_PTRACER, _ANYBODY, 0, 0, 0)
