"""Registers landed directories: once each, in their place, skipped by rule, refused where their content changed.

Belongs here: the notes of discovery, too: directories that settle, and the progress of the full listing.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from os.path import commonprefix
from typing import Literal
from uuid import uuid4

from manifest_platform.manifest import skip_rules, transitions
from manifest_platform.manifest.choosing import Choosing
from manifest_platform.manifest.dataset import Step, StepState
from manifest_platform.manifest.errors import Refused
from manifest_platform.manifest.item import ItemKey, Landed
from manifest_platform.manifest.keys import (
    SKIP_RULE_CHANGES,
    SKIP_RULES,
    item_key,
    listed_key,
    look_key,
    look_prefix,
    looked_at,
    old_looks_key,
    record_key,
    records_prefix,
)
from manifest_platform.manifest.reading import DISCOVERY, FullListing
from manifest_platform.manifest.records import EVERYONE, Application, Holding, format_time, parse_time
from manifest_platform.manifest.rows import landed_checksum, move_of, position_of
from manifest_platform.manifest.skip_rules import RuleChange, SkipRule, SkipRules
from manifest_platform.manifest.store import (
    ABSENT,
    MAX_WRITES,
    TRIES,
    Check,
    ConditionFailed,
    Delete,
    Put,
    Row,
    Write,
    optimistically,
    transact_once,
)
from manifest_platform.manifest.takeover import NOTE, note

KNOWN = 50_000
"""The number of confirmed items that a Manifest object remembers.

It remembers twice the number of keys in one call if that is more.
"""
SORTS = 200_000
"""The number of sort keys of items of the past that a Manifest object remembers for a feed, without anything else."""


@dataclass(frozen=True)
class Discovered:
    """The outcome of the registration of a landed directory.

    - `new`: registered. `late`: registered behind the watermark, and will be appended. `quarantined`: registered behind the
      watermark and set aside.
    - `known`: registered before. `changed`: known with another checksum; refused, the registered content remains valid.
    - `moved`: refused, because an item with its sort key is registered under another URI, `known_as`; it would be loaded twice.

    `skipped_by`: the ids of the skip rules that skipped it now.
    """

    landed: Landed
    outcome: Literal["new", "late", "quarantined", "known", "changed", "moved"]
    known_as: str | None = None
    skipped_by: tuple[str, ...] = ()


class Registering(Choosing):
    """Registration of landed directories, and the skip rules that apply to them."""

    # Discovery

    def known(self, feed: str, keys: Sequence[ItemKey]) -> dict[str, str | None]:
        """The checksums of the items that the manifest has, by id; None for an item whose checksum it does not know.

        An item that was confirmed once costs no request. A key that was not found before, such as a directory that is never
        completed, is asked for alone, so that the items between it and the newest are not read. The oldest items are forgotten
        if there are many, because a process may live for years.
        """
        self._forget_the_oldest(feed, len(keys))
        unheard = [key for key in keys if (feed, key.sort) not in self._uris]
        again = [key for key in unheard if (feed, key.sort) in self._asked]
        self._learn(feed, [key.sort for key in unheard if (feed, key.sort) not in self._asked])
        if again:
            rows = self.store.get_many(self.dataset, [record_key(key, 1) for key in again])
            for key in again:
                if row := rows.get(record_key(key, 1)):
                    self._remember(key, landed_checksum(row))
        self._asked.update((feed, key.sort) for key in unheard if (feed, key.sort) not in self._uris)
        items = {key.id: self._aliases.get(key, key) for key in keys}
        return {id_: self._confirmed[key] for id_, key in items.items() if key in self._confirmed}

    def _forget_the_oldest(self, feed: str, asked: int) -> None:
        """Forgets a feed's oldest items if too many are known. It keeps at least the number that is `asked` for in one call."""
        most = max(KNOWN, 2 * asked)
        if len(self._uris) + len(self._asked) <= most:
            return
        heard = sorted({sort for of_feed, sort in (*self._uris, *self._asked) if of_feed == feed}, reverse=True)
        if len(heard) <= most // 2:
            return
        oldest = heard[most // 2 - 1]
        self._uris = {place: id_ for place, id_ in self._uris.items() if place[0] != feed or place[1] >= oldest}
        self._asked = {place for place in self._asked if place[0] != feed or place[1] >= oldest}
        self._confirmed = {key: sum_ for key, sum_ in self._confirmed.items() if key.feed != feed or key.sort >= oldest}
        self._aliases = {place: key for place, key in self._aliases.items() if key.feed != feed or key.sort >= oldest}

    def has_heard_beyond(self, feed: str, position: str) -> bool:
        """True if this object remembers an item of the feed beyond a position. Sends no request."""
        return any(of_feed == feed and sort > position.partition("#")[0] for of_feed, sort in self._uris)

    def registered(self, feed: str, keys: Sequence[ItemKey]) -> dict[str, str]:
        """The ids under which the manifest has these sort keys, by sort key. Costs what `known` costs."""
        self.known(feed, keys)
        return {key.sort: self._uris[feed, key.sort] for key in keys if (feed, key.sort) in self._uris}

    def looks(self, feed: str, all_known: bool = False) -> dict[str, Row]:
        """The notes of discovery on directories that are not complete yet: a row for each directory, by its name.

        `all_known`: every directory that was listed is registered. Nothing is then read for a feed that had no notes before,
        because a process writes a note only for a directory that is not registered.
        """
        if all_known and feed in self._nothing_noted:
            return {}
        self._take_over_looks(feed)
        return {looked_at(row.sort, feed): row for row in self._pages(look_prefix(feed), None)}

    def keep_looks(self, feed: str, before: Mapping[str, Row], looks: Mapping[str, Mapping[str, str]]) -> None:
        """Stores discovery's notes on directories, in place of the notes that `looks` read before.

        A directory that is missing in `looks` is forgotten. Only changes are written. Another process's newer note stays.
        """
        if before or looks:
            self._nothing_noted.discard(feed)
        else:
            self._nothing_noted.add(feed)
        writes: list[Write] = [
            Put(look_key(feed, name), dict(look), before[name].version if name in before else ABSENT)
            for name, look in looks.items()
            if name not in before or before[name].data != look
        ]
        writes += [Delete(row.sort, row.version) for name, row in before.items() if name not in looks]
        self._write_notes(writes)

    def _write_notes(self, writes: Sequence[Write]) -> None:
        """Carries out writes that do not depend on each other. Writes whose row changed meanwhile are left out."""
        for start in range(0, len(writes), MAX_WRITES):
            left = list(writes[start : start + MAX_WRITES])
            while left:
                try:
                    self.store.transact(self.dataset, left, str(uuid4()))
                    break
                except ConditionFailed as error:
                    changed = {write.sort for write in error.failed}
                    left = [write for write in left if write.sort not in changed] if changed else []

    def _take_over_looks(self, feed: str) -> None:
        """Converts the single row of an older release to a row for each directory, once. Existing notes stay."""
        if feed in self._taken_over:
            return
        old = self.store.get(self.dataset, old_looks_key(feed))
        if old and (noted := {name: look for name, look in old.data.items() if name != NOTE}):
            self._write_notes([Put(look_key(feed, name), look, ABSENT) for name, look in noted.items()])
            kept = Put(old.sort, note(), old.version) if NOTE in old.data else Delete(old.sort, old.version)
            self._write_notes([kept])
        self._taken_over.add(feed)

    def discover(self, feed: str, landed: Sequence[Landed]) -> list[Discovered]:
        """Registers landed directories of a feed, in any order; idempotent.

        Of several directories with one sort key, only one is registered: the directory that the manifest has, or else the first
        by URI. A directory that this object has confirmed once costs no request again. A transaction registers up to about
        forty. Raises Refused for a feed that is not declared, ValueError for a directory of another feed.
        """
        steps = self.steps(feed)
        strangers = [found.key.id for found in landed if found.key.feed != feed]
        if strangers:
            raise ValueError(f"{strangers[0]} is not of feed {feed}: discover each feed's directories by themselves")
        unheard = sorted({found.key.sort for found in landed if (feed, found.key.sort) not in self._uris})
        registered: dict[ItemKey, Discovered] = {}
        if unheard:
            self._learn(feed, unheard)
            by_sort: dict[str, Landed] = {}
            for found in sorted(landed, key=lambda one: one.key):
                by_sort.setdefault(found.key.sort, found)
            fresh = [by_sort[sort] for sort in unheard if (feed, sort) not in self._uris]
            size = (MAX_WRITES - len(steps)) // (1 + len(steps))
            for start in range(0, len(fresh), size):
                registered.update(self._register(feed, fresh[start : start + size]))
        self._hear_of_moves(feed, landed)
        return [registered.pop(found.key, None) or self._compare(found) for found in landed]

    def _compare(self, found: Landed) -> Discovered:
        key = self._aliases.get(found.key)
        if key:
            found = replace(found, key=key, content=found.key.id)
        if found.key not in self._confirmed:
            return Discovered(found, "moved", self._uris[found.key.feed, found.key.sort])
        return Discovered(found, "known" if self.knows(found.key, found.checksum) else "changed")

    def knows(self, key: ItemKey, checksum: str) -> bool:
        """True if the content is a known item's, or was acknowledged.

        The log is read only if it is not the registered content.
        """
        if self._confirmed.get(key) in (None, checksum):
            return True
        item = self.item(key)
        if item.knows(checksum):
            return True
        # While retention deletes a directory file by file, what is left of it is no other content.
        return item.deletion_of(Holding.LANDING) is not None and self.is_being_deleted(key)

    def _hear_of_moves(self, feed: str, landed: Sequence[Landed]) -> None:
        """Learns the current locations of items again, once the first item is found at another location.

        Another process may have recorded a move since this object read the items. Until it has, this costs a query for each
        look.
        """
        moved = [one.key for one in landed if one.key not in self._confirmed and one.key not in self._aliases]
        moved = [key for key in moved if (feed, key.sort) in self._uris]
        if moved:
            self._learn(feed, [moved[0].sort])
            if moved[0] in self._aliases:
                self._learn(feed, [key.sort for key in moved])

    def _learn(self, feed: str, sorts: Sequence[str]) -> None:
        """Remembers the items with these sort keys, every id of each, and the items between them. Items never disappear.

        It does not read between sort keys if it knows items between them already.
        """
        if not sorts:
            return
        prefix = records_prefix(feed)
        heard = sorted(sort for of_feed, sort in self._uris if of_feed == feed)
        for _, stretch in groupby(sorted(sorts), key=lambda sort: bisect(heard, sort)):
            wanted = list(stretch)
            first, last = f"{wanted[0]}#", f"{wanted[-1]}#"
            for row in self._pages(prefix + commonprefix([first, last]), prefix + first):  # noqa: RUF071 - no paths
                key = ItemKey.at(feed, position_of(row, prefix))
                if key.sort > wanted[-1]:
                    break
                if self._confirmed.get(key) is None:
                    self._remember(key, landed_checksum(row))
                if data := move_of(row):
                    self._aliases[ItemKey(feed, key.sort, data["place"])] = key
                    self._confirmed[key] = data.get("checksum") or self._confirmed[key]
                self._saw(row)

    def unregistered(self, feed: str, sorts: Iterable[str]) -> set[str]:
        """The sort keys among these that no item has.

        For the many items of the past: only their sort keys are remembered.
        """
        heard = self._sorts.setdefault(feed, set())
        left = {sort for sort in sorts if sort not in heard and (feed, sort) not in self._uris}
        if left:
            asked = set(left)
            prefix, last = records_prefix(feed), max(left)
            for row in self._pages(prefix, f"{prefix}{min(left)}#"):
                sort = position_of(row, prefix).partition("#")[0]
                if sort > last:
                    break
                left.discard(sort)
            if len(heard) + len(asked) > SORTS:
                heard.clear()
            heard |= asked - left
        return left

    def full_listing(self, feed: str, place: str = "") -> FullListing:
        """Returns the progress of the listing of all directories of a feed: one request, once for each Manifest object.

        `place`: the landing root and its layout now. Progress of another place is forgotten. Empty: wherever it was made.
        """
        if feed not in self._full_listings:
            row = self.store.get(self.dataset, listed_key(feed))
            self._full_listings[feed] = _listing_of(row) if row else FullListing()
        found = self._full_listings[feed]
        if place and found.place not in ("", place):
            found = FullListing(version=found.version)
        return replace(found, place=place or found.place)

    def keep_full_listing(self, feed: str, beyond: str, done_at: datetime | None, place: str) -> None:
        """Stores the progress of the listing since `full_listing` was read. Another process's newer progress stays."""
        self._keep_listing(feed, replace(self.full_listing(feed, place), beyond=beyond, done_at=done_at))

    def keep_reached(self, feed: str, reached: datetime, place: str) -> None:
        """Stores the logical time up to which looks have listed everything once. Another process's newer progress stays."""
        before = self.full_listing(feed, place)
        if reached != before.reached:
            self._keep_listing(feed, replace(before, reached=reached))

    def _keep_listing(self, feed: str, listing: FullListing) -> None:
        self._full_listings.pop(feed, None)
        done_at, reached = (format_time(time) if time else None for time in (listing.done_at, listing.reached))
        data = {"beyond": listing.beyond, "done_at": done_at, "reached": reached, "place": listing.place}
        try:
            self.store.transact(self.dataset, [Put(listed_key(feed), data, listing.version, lasting=True)], str(uuid4()))
        except ConditionFailed:
            return
        self._full_listings[feed] = replace(listing, version=listing.version + 1)

    def _remember(self, key: ItemKey, checksum: str | None) -> None:
        self._confirmed[key] = checksum
        self._uris.setdefault((key.feed, key.sort), key.id)

    def _register(self, feed: str, landed: Sequence[Landed]) -> dict[ItemKey, Discovered]:
        """Registers directories in one transaction. Returns the outcome of those that nobody else registered meanwhile."""
        steps = self.feeds[feed]

        def register() -> dict[ItemKey, Discovered]:
            left = [found for found in landed if (feed, found.key.sort) not in self._uris]
            if not left:
                return {}
            states, rules = self._states_and_skip_rules(feed)
            skips = self._skips(left, rules, steps)
            writes = transitions.discover(left, steps, states, DISCOVERY, self._stamp(), skips)
            writes.append(Check(SKIP_RULES, rules.version))
            if len(writes) > MAX_WRITES and len(left) > 1:
                half = len(left) // 2
                return self._register(feed, left[:half]) | self._register(feed, left[half:])
            try:
                self._write(writes)
            except ConditionFailed:
                self._learn(feed, [found.key.sort for found in left])
                raise
            for found in left:
                self._remember(found.key, found.checksum)
            by = {key: tuple(rule.id for rule in found) for key, found in skips.items()}
            return {
                found.key: Discovered(found, lateness(found.key, steps, states), skipped_by=by.get(found.key, ()))
                for found in left
            }

        return optimistically(
            register, lambda: Refused(f"feed {feed}: its watermark or items changed {TRIES} times during discovery; try again")
        )

    def register(self, landed: Landed) -> Discovered:
        """Registers any item by its id; idempotent. Only the id identifies it, not the sort key.

        For items that are not directories, which no listing finds: a row gives the item's sort key by its id. Checksums are
        compared if both are given. `known`: the item keeps its place, whatever sort key is given now. Raises Refused.
        """
        key = landed.key
        index = item_key(key.feed, key.id)

        def attempt() -> Discovered:
            row = self.store.get(self.dataset, index)
            if row:
                item = self.item(ItemKey(key.feed, row.data["sort"], key.id))
                there = item.landed
                same = not landed.checksum or not (there and there.checksum) or item.knows(landed.checksum)
                return Discovered(replace(landed, key=item.key), "known" if same else "changed")
            steps = self.steps(key.feed)
            states, rules = self._states_and_skip_rules(key.feed)
            skips = self._skips([landed], rules, steps)
            writes = transitions.discover([landed], steps, states, DISCOVERY, self._stamp(), skips)
            self._write([*writes, Put(index, {"sort": key.sort}, ABSENT, lasting=True), Check(SKIP_RULES, rules.version)])
            by = tuple(rule.id for found in skips.values() for rule in found)
            return Discovered(landed, lateness(key, steps, states), skipped_by=by)

        return optimistically(
            attempt, lambda: Refused(f"{key.id}: the watermark of feed {key.feed} moved {TRIES} times meanwhile; try again")
        )

    def registered_as(self, feed: str, id_: str) -> ItemKey | None:
        """The key of an item that a program registered, by its id; None if none was."""
        row = self.store.get(self.dataset, item_key(feed, id_))
        return ItemKey(feed, row.data["sort"], id_) if row else None

    def _skips(self, landed: Sequence[Landed], rules: SkipRules, steps: Sequence[Step]) -> dict[ItemKey, list[SkipRule]]:
        """The rules that skip directories when they are registered, by item."""
        rules.require_writable()
        if rules.have_periods and self._time_of is None:
            raise Refused("a skip rule is in force for a period, and this program was given no way to tell the time of items")
        now, time_of = self._clock(), self._time_of or (lambda _: None)
        applying = {found.key: rules.applying(found.key, time_of(found), steps, now) for found in landed if rules.rules}
        return {key: found for key, found in applying.items() if found}

    # Rules that skip items when they are registered

    def skip_rules(self) -> SkipRules:
        """The rules in force, and the number of changes so far."""
        return SkipRules.of(self.store.get(self.dataset, SKIP_RULES))

    def skip_rule_changes(self) -> Iterator[RuleChange]:
        """All changes of the skip rules, oldest first."""
        return (RuleChange.of(row) for row in self._pages(SKIP_RULE_CHANGES, None))

    def add_skip_rule(self, wanted: SkipRule) -> SkipRule:
        """Adds a rule: matching items that are registered from now on are skipped, whoever registers them.

        Registered items stay unchanged. Raises Refused if there are too many rules, if the rule has ended already, and for a
        feed or application that is not declared.
        """
        who = Application.parse(wanted.application)
        feeds = [wanted.feed] if wanted.feed else [*self.feeds]
        named = [step for feed in feeds for step in self.steps(feed)]
        if not any(step.application.is_stopped_by(who) for step in named):
            known = ", ".join(dict.fromkeys(step.application.key for step in named))
            raise Refused(f"no step is called {wanted.application}; there are: {known}, {EVERYONE}")
        return self._change_skip_rules(lambda rules: skip_rules.add(rules, wanted, self._stamp()))

    def remove_skip_rule(self, id_: str, reason: str) -> SkipRule:
        """Ends a rule; items that it has skipped stay skipped. Raises Refused if no rule has this id."""
        return self._change_skip_rules(lambda rules: skip_rules.remove(rules, id_, reason, self._stamp()))

    def _change_skip_rules(self, change: Callable[[SkipRules], tuple[SkipRule, list[Write]]]) -> SkipRule:
        def attempt() -> SkipRule:
            rule, writes = change(self.skip_rules())
            if not self._rehearsing:
                transact_once(self.store, self.dataset, writes, mark="record_id")
            return rule

        return optimistically(attempt, lambda: Refused(f"the skip rules changed {TRIES} times while they were read; try again"))


def _listing_of(row: Row) -> FullListing:
    done_at, reached = (parse_time(text) if (text := row.data.get(name)) else None for name in ("done_at", "reached"))
    return FullListing(row.data["beyond"], done_at, reached, row.data.get("place", ""), row.version)


def lateness(key: ItemKey, steps: Sequence[Step], states: Mapping[str, StepState]) -> Literal["new", "late", "quarantined"]:
    """The outcome for a landed directory at the steps of its feed: new, late, or late and set aside by a policy."""
    late = [step for step in steps if step.order == "strict" and transitions.comes_late(key, states[step.application.key])]
    if not late:
        return "new"
    return "late" if all(step.late == "append" for step in late) else "quarantined"
