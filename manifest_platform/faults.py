"""The two kinds of fault: permanent, which a person has to mend, and transient, which may pass with nothing changed.

Every error that the platform raises about something outside itself is of one of them, so that who catches it need not know
which part it came from. A transient fault is an outage: it is charged to no item.
"""


class Permanent(Exception):
    """Trying again changes nothing: the message says what has to be mended."""


class Transient(Exception):
    """It may work later with nothing changed: a timeout, throttling, a server that is down."""
