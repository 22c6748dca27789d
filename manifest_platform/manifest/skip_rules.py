"""Rules by which items are skipped as they are registered: what operators decide of items that are still to come.

Belongs here: the rule, its stored form, which items it means, and its changes as pure functions. The rules in force are one
row, on whose version every registration rests: so no item that a rule means is registered without its Skipped record. Each
change is a row of its own beside, put once and never changed: who, when and why.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Literal

from manifest_platform.manifest.dataset import Step
from manifest_platform.manifest.errors import Refused
from manifest_platform.manifest.item import ItemKey
from manifest_platform.manifest.keys import SKIP_RULES, skip_rule_change_key
from manifest_platform.manifest.records import (
    EVERYONE,
    SKIPPED_BY_RULE,
    Application,
    Payload,
    Stamp,
    format_time,
    parse_time,
)
from manifest_platform.manifest.store import ABSENT, Put, Row, Write
from manifest_platform.releases import FORM, OWN, RELEASE, Form, unknown

MOST_RULES = 100
"""How many rules a dataset may have: each is held against each item that is registered."""
LONGEST_PATTERN, LONGEST_REASON = 256, 256
"""Characters that a pattern and a reason may have: all rules fit one row of any store."""


class InvalidRule(ValueError):
    """A rule that means nothing, or that cannot be kept; the message says what is allowed."""


@dataclass(frozen=True)
class SkipRule:
    """Items that are to be skipped when they are registered: all conditions that are given must hold.

    `pattern`: as of file names, for an item's name, or for its URI where it has a `://`. `since`, `before`: a period of the
    item's logical time, its end excluded. `feed`: one feed's items alone. `until`: when the rule ends, by the clock of who
    registers. `application`: who is to skip them, `*` for everyone. Raises InvalidRule.
    """

    reason: str
    pattern: str | None = None
    since: datetime | None = None
    before: datetime | None = None
    feed: str | None = None
    until: datetime | None = None
    application: str = EVERYONE
    id: str = ""
    author: str = ""
    added_at: datetime | None = None
    unknown: dict[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if self.pattern is None and self.since is None and self.before is None:
            raise InvalidRule("a rule needs a pattern for names, as 'run=2026-01-3*', or a period: from, to, or both")
        if self.pattern is not None and not 0 < len(self.pattern) <= LONGEST_PATTERN:
            raise InvalidRule(f"a pattern of {len(self.pattern):,} characters: allowed are 1 to {LONGEST_PATTERN}")
        if self.pattern is not None and not (self.pattern.isascii() and self.pattern.isprintable()):
            raise InvalidRule(f"pattern {self.pattern!r}: names are printable ASCII, so this means none")
        if len(self.reason) > LONGEST_REASON:
            raise InvalidRule(f"a reason of {len(self.reason):,} characters: at most {LONGEST_REASON:,} are kept")
        if self.since and self.before and self.since >= self.before:
            raise InvalidRule(
                f"a period from {format_time(self.since)} to {format_time(self.before)}: it ends before it begins"
            )

    @property
    def has_period(self) -> bool:
        """Whether the rule asks for the logical time of items."""
        return self.since is not None or self.before is not None

    def is_over(self, now: datetime) -> bool:
        """Whether the rule has ended."""
        return self.until is not None and now >= self.until

    def means(self, key: ItemKey, time: datetime | None) -> bool:
        """Whether an item with a logical time is meant; one without a time is in no period."""
        if self.feed is not None and key.feed != self.feed:
            return False
        if self.pattern is not None and not fnmatchcase(key.id if "://" in self.pattern else key.name, self.pattern):
            return False
        if not self.has_period:
            return True
        return time is not None and (self.since or time) <= time and (self.before is None or time < self.before)

    def payload(self) -> Payload:
        """What the Skipped record of an item says."""
        return Payload(SKIPPED_BY_RULE, {"reason": f"{self.reason} (skip rule {self.id})", "rule": self.id})

    def describe(self) -> str:
        """What the rule means, in words."""
        said = [f"feed {self.feed}"] if self.feed else []
        said += [self.pattern] if self.pattern is not None else []
        said += [f"from {self.since:%Y-%m-%d %H:%M} UTC"] if self.since else []
        said += [f"to {self.before:%Y-%m-%d %H:%M} UTC"] if self.before else []
        return ", ".join(said)

    def to_dict(self) -> dict[str, Any]:
        """The stored form."""
        times = {name: getattr(self, name) for name in ("since", "before", "until", "added_at")}
        texts = {name: getattr(self, name) for name in ("id", "pattern", "feed", "application", "reason", "author")}
        return {**self.unknown, **texts, **{name: format_time(time) if time else None for name, time in times.items()}}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SkipRule:
        """The rule of its stored form."""
        times = {name: parse_time(data[name]) if data.get(name) else None for name in ("since", "before", "until", "added_at")}
        texts = {name: data[name] for name in ("id", "pattern", "feed", "application", "reason", "author")}
        return cls(**texts, **times, unknown=unknown(data, {*times, *texts}))


@dataclass(frozen=True)
class SkipRules:
    """The rules in force, in the order in which they were added, and how many changes there were; `version` is the row's."""

    rules: tuple[SkipRule, ...] = ()
    changes: int = 0
    version: int = ABSENT
    form: Form = field(default=OWN, compare=False)
    unknown: dict[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, row: Row | None) -> SkipRules:
        """The rules in their row; none where there is no row."""
        if row is None:
            return cls()
        data, known = row.data, {"version", "release", "rules", "changes", "change"}
        rules = tuple(SkipRule.from_dict(one) for one in data["rules"])
        return cls(rules, data["changes"], row.version, Form.of(data), unknown(data, known))

    def to_dict(self) -> dict[str, Any]:
        """The stored form."""
        rules = [rule.to_dict() for rule in self.rules]
        return {**self.unknown, "version": FORM, "release": RELEASE, "rules": rules, "changes": self.changes}

    def find(self, id_: str) -> SkipRule:
        """The rule of an id. Raises Refused."""
        for rule in self.rules:
            if rule.id == id_:
                return rule
        known = ", ".join(rule.id for rule in self.rules) or "none"
        raise Refused(f"there is no skip rule {id_!r}; in force: {known}")

    def applying(self, key: ItemKey, time: datetime | None, steps: Sequence[Step], now: datetime) -> list[SkipRule]:
        """The rules by which an item is to be skipped, of an application each: the first for everyone alone, where one is."""
        found: dict[str, SkipRule] = {}
        for rule in self.rules:
            who = Application.parse(rule.application)
            if rule.is_over(now) or not any(step.application.is_stopped_by(who) for step in steps):
                continue
            if rule.application not in found and rule.means(key, time):
                found[rule.application] = rule
        return [found[EVERYONE]] if EVERYONE in found else list(found.values())

    @property
    def have_periods(self) -> bool:
        """Whether some rule asks for the logical time of items."""
        return any(rule.has_period for rule in self.rules)

    def require_writable(self) -> None:
        """Raises NewerRelease where a newer release wrote the rules: this one may not know what they mean."""
        self.form.require_writable("the rules by which items are skipped")


@dataclass(frozen=True)
class RuleChange:
    """One change of the rules: which rule was added or removed, by whom, when (UTC) and why."""

    change: Literal["added", "removed"]
    rule: SkipRule
    author: str
    run_id: str | None
    at: datetime
    reason: str

    @classmethod
    def of(cls, row: Row) -> RuleChange:
        """The change in its row."""
        data = row.data
        return cls(
            data["change"],
            SkipRule.from_dict(data["rule"]),
            data["author"],
            data["run_id"],
            parse_time(data["at"]),
            data["reason"],
        )


def add(rules: SkipRules, wanted: SkipRule, stamp: Stamp) -> tuple[SkipRule, list[Write]]:
    """Adds a rule, with an id of its own. Raises Refused where there are too many, and where it is over already."""
    rules.require_writable()
    if len(rules.rules) >= MOST_RULES:
        raise Refused(f"there are {MOST_RULES} skip rules, and no more are allowed: remove one that is over or not needed")
    if wanted.is_over(stamp.at):
        raise Refused(f"the rule would be over since {format_time(wanted.until or stamp.at)}: say a time to come, or none")
    rule = dataclasses.replace(wanted, id=f"r{rules.changes + 1}", author=stamp.author, added_at=stamp.at)
    return rule, _changed(rules, (*rules.rules, rule), "added", rule, rule.reason, stamp)


def remove(rules: SkipRules, id_: str, reason: str, stamp: Stamp) -> tuple[SkipRule, list[Write]]:
    """Ends a rule; what it had skipped stays so. Raises Refused for an id that no rule has."""
    rules.require_writable()
    removed = rules.find(id_)
    return removed, _changed(rules, tuple(rule for rule in rules.rules if rule != removed), "removed", removed, reason, stamp)


def _changed(
    before: SkipRules,
    after: tuple[SkipRule, ...],
    change: Literal["added", "removed"],
    rule: SkipRule,
    reason: str,
    stamp: Stamp,
) -> list[Write]:
    number = before.changes + 1
    row = dataclasses.replace(before, rules=after, changes=number).to_dict()
    said = {"change": change, "rule": rule.to_dict(), "author": stamp.author, "run_id": stamp.run_id, "reason": reason}
    log = {**said, "at": format_time(stamp.at), "record_id": stamp.record_id, "version": FORM, "release": RELEASE}
    return [Put(skip_rule_change_key(number), log, ABSENT), Put(SKIP_RULES, row, before.version)]
