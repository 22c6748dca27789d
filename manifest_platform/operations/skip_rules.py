"""Skip rules for people: a rule's effect on items that are registered already.

Belongs here: the list of matching items that are older than the rule. The rules themselves are in `manifest.skip_rules`.
"""

from __future__ import annotations

from collections.abc import Iterator

from manifest_platform.manifest import Application, ItemKey
from manifest_platform.manifest.dataset import PASSED
from manifest_platform.manifest.skip_rules import SkipRule
from manifest_platform.pipeline import Pipeline


def registered_already(pipeline: Pipeline, rule: SkipRule) -> Iterator[ItemKey]:
    """Yields the items that match a rule and are neither done nor skipped. They are older than the rule, so it does not apply.

    Reads no more than the backlogs of the steps that the rule is for.
    """
    who = Application.parse(rule.application)
    for feed in [rule.feed] if rule.feed else pipeline.manifest.feeds:
        seen: set[ItemKey] = set()
        for step in pipeline.manifest.steps(feed):
            if not step.application.is_stopped_by(who):
                continue
            for item, judged in pipeline.manifest.backlog(feed, step.application.key):
                if item.key in seen or judged.standing in PASSED or item.skipped_for(step.application):
                    continue
                seen.add(item.key)
                if rule.means(item.key, pipeline.source.logical_time(item.landed) if item.landed else None):
                    yield item.key
