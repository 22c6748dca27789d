"""Skip rules: rules by which items are skipped when they are registered, so that operators can decide on future items.

Belongs here: the rule, its stored form, the items that it matches, and its changes as pure functions. The rules in force are
one row, and every registration is conditional on its version. So no item that a rule matches is registered without its Skipped
record. Each change has a row of its own, put once and never changed: who, when and why.
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
"""The most rules of a dataset: each rule is checked for each item that is registered."""
LONGEST_PATTERN, LONGEST_REASON = 256, 256
"""The maximum length of a pattern and of a reason, in characters, so that all rules fit one row of any store."""


class InvalidRule(ValueError):
    """A rule that matches nothing, or that cannot be stored; the message says what is allowed."""


@dataclass(frozen=True)
class SkipRule:
    """A rule that skips items when they are registered. An item must meet all conditions that are given.

    - `pattern`: a pattern as for file names, for an item's name, or for its URI if the pattern contains `://`.
    - `since`, `before`: a period of the item's logical time, its end excluded.
    - `feed`: only the items of this feed.
    - `until`: the end of the rule, by the clock of the program that registers an item.
    - `application`: the application that skips the items; `*` for every application.

    Raises InvalidRule.
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
            raise InvalidRule("a rule needs a pattern for names, such as 'run=2026-01-3*', or a period: from, to, or both")
        if self.pattern is not None and not 0 < len(self.pattern) <= LONGEST_PATTERN:
            raise InvalidRule(f"a pattern of {len(self.pattern):,} characters: allowed are 1 to {LONGEST_PATTERN}")
        if self.pattern is not None and not (self.pattern.isascii() and self.pattern.isprintable()):
            raise InvalidRule(f"pattern {self.pattern!r}: names are printable ASCII, so it matches none")
        if len(self.reason) > LONGEST_REASON:
            raise InvalidRule(f"a reason of {len(self.reason):,} characters: at most {LONGEST_REASON:,} are kept")
        if self.since and self.before and self.since >= self.before:
            raise InvalidRule(
                f"a period from {format_time(self.since)} to {format_time(self.before)}: it ends before it begins"
            )

    @property
    def has_period(self) -> bool:
        """True if the rule depends on the logical time of items."""
        return self.since is not None or self.before is not None

    def is_over(self, now: datetime) -> bool:
        """True if the rule has ended."""
        return self.until is not None and now >= self.until

    def means(self, key: ItemKey, time: datetime | None) -> bool:
        """True if the rule matches an item with a logical time. An item without a time is in no period."""
        if self.feed is not None and key.feed != self.feed:
            return False
        if self.pattern is not None and not fnmatchcase(key.id if "://" in self.pattern else key.name, self.pattern):
            return False
        if not self.has_period:
            return True
        return time is not None and (self.since or time) <= time and (self.before is None or time < self.before)

    def payload(self) -> Payload:
        """The payload of the item's Skipped record."""
        return Payload(SKIPPED_BY_RULE, {"reason": f"{self.reason} (skip rule {self.id})", "rule": self.id})

    def describe(self) -> str:
        """The rule in words."""
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
        """Parses the stored form."""
        times = {name: parse_time(data[name]) if data.get(name) else None for name in ("since", "before", "until", "added_at")}
        texts = {name: data[name] for name in ("id", "pattern", "feed", "application", "reason", "author")}
        return cls(**texts, **times, unknown=unknown(data, {*times, *texts}))


@dataclass(frozen=True)
class SkipRules:
    """The rules in force, in the order in which they were added, and the number of changes; `version` is the row's."""

    rules: tuple[SkipRule, ...] = ()
    changes: int = 0
    version: int = ABSENT
    form: Form = field(default=OWN, compare=False)
    unknown: dict[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, row: Row | None) -> SkipRules:
        """The rules in their row; no rules if there is no row."""
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
        """The rule with an id. Raises Refused."""
        for rule in self.rules:
            if rule.id == id_:
                return rule
        known = ", ".join(rule.id for rule in self.rules) or "none"
        raise Refused(f"there is no skip rule {id_!r}; in force: {known}")

    def applying(self, key: ItemKey, time: datetime | None, steps: Sequence[Step], now: datetime) -> list[SkipRule]:
        """The rules by which an item is skipped, one for each application.

        If a rule is for every application, only the first such rule.
        """
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
        """True if any rule depends on the logical time of items."""
        return any(rule.has_period for rule in self.rules)

    def require_writable(self) -> None:
        """Raises NewerRelease if a newer release wrote the rules: this release may not know their meaning."""
        self.form.require_writable("the rules by which items are skipped")


@dataclass(frozen=True)
class RuleChange:
    """A change of the rules: which rule was added or removed, by whom, when (UTC) and why."""

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
    """Adds a rule with a new id. Raises Refused if there are too many rules, and if the rule has ended already."""
    rules.require_writable()
    if len(rules.rules) >= MOST_RULES:
        raise Refused(f"there are {MOST_RULES} skip rules, and no more are allowed: remove a rule that is over or not needed")
    if wanted.is_over(stamp.at):
        raise Refused(
            f"the rule would be over since {format_time(wanted.until or stamp.at)}: give a time in the future, or none"
        )
    rule = dataclasses.replace(wanted, id=f"r{rules.changes + 1}", author=stamp.author, added_at=stamp.at)
    return rule, _changed(rules, (*rules.rules, rule), "added", rule, rule.reason, stamp)


def remove(rules: SkipRules, id_: str, reason: str, stamp: Stamp) -> tuple[SkipRule, list[Write]]:
    """Ends a rule; items that it has skipped stay skipped. Raises Refused if no rule has this id."""
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
