"""The two kinds of fault: permanent, which a person has to mend, and transient, which may pass with nothing changed.

Every error that the platform raises about something outside itself is of one of them, so that who catches it need not know
which part it came from. A transient fault is an outage: it is charged to no item. Neither is a permanent one of the
configuration.
"""


class Permanent(Exception):
    """Trying again changes nothing: the message says what has to be mended."""


class Misconfigured(Permanent):
    """No item can be worked on before a person mends the configuration, or a right: charged to no item, as an outage is not."""


class Transient(Exception):
    """It may work later with nothing changed: a timeout, throttling, a server that is down."""
