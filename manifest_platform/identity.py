"""Who runs this process, as records and leases name them.

Belongs here: the name of the person or account behind the process. What is recorded with it does not.
"""

from __future__ import annotations

import getpass
import os


def operator_name() -> str:
    """The user's name; `uid 1001` where the system knows none for the user's number, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # until Python 3.12, and from 3.13 on
        return f"uid {os.getuid()}"
