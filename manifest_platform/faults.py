"""The two kinds of fault: permanent (a person must act) and transient (a later attempt may succeed without any change).

Every error about something outside of the platform is of one of these kinds, so that a caller need not know which package
raised it. A transient fault is an outage, which is charged to no item. Neither is a permanent fault of the configuration.
"""


class Permanent(Exception):
    """A retry changes nothing. The message says what a person must do."""


class Misconfigured(Permanent):
    """The configuration or a permission is wrong, which affects all items: it is charged to no item, like an outage."""


class Transient(Exception):
    """A later attempt may succeed without any change: a timeout, throttling, a server that is down."""
