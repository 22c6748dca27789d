"""`drain --follow`: prints what a follower does, and ends it well."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import Any

import typer

from manifest_platform.cli.app import as_json
from manifest_platform.cli.context import chosen_dataset, configuration, run_id
from manifest_platform.cli.discover import print_found, report_document, warn_of
from manifest_platform.cli.drained import end_document, event_document, print_ends, print_totals, progress
from manifest_platform.cli.output import print_json, say, warn, wrapped
from manifest_platform.cli.remedies import Typed, document, typed
from manifest_platform.cli.signals import ending_well
from manifest_platform.config.config import ConfigError
from manifest_platform.config.present import problems
from manifest_platform.manifest import Refused
from manifest_platform.notices import Bell
from manifest_platform.pipeline import DiscoveryReport, FeedEnd, Pipeline
from manifest_platform.pipeline.follow import Drained, Follower, Hindered, StandsBy, Stuck, Told, TookOver, follow
from manifest_platform.pipeline.health import answering


def run(context: typer.Context, feeds: Sequence[str] | None, target: str | None) -> None:
    """Follows the named dataset, or all, until a signal ends it."""
    settings, named = configuration(context), chosen_dataset(context)
    names = [settings.dataset(named)] if named else list(settings.datasets)
    if wrong := [found for name in names for found in problems(settings, name, landing=False)]:
        raise ConfigError("\n".join(["nothing was started; correct the configuration:", *(f"  {one}" for one in wrong)]))
    with ending_well("the next follower or drain continues from here"), ExitStack() as stack:
        followers: list[Follower] = []
        for name in names:
            follower = Follower(
                lambda name=name: Pipeline(settings, name, run_id(context), target=target),
                settings.spark.session,
                settings.follow,
                feeds,
                [target] if target else None,
            )
            stack.callback(follower.close)
            for feed in feeds or ():
                follower.pipeline.manifest.steps(feed)  # refuses an unknown feed before any work starts
            followers += [follower] if follower.pipeline.feeds else []
        if not followers:
            raise Refused("there is no landing root to follow: the items of these datasets are registered with `put new`")
        stack.enter_context(answering(settings.follow.health, lambda: [one.health for one in followers]))
        bell = stack.enter_context(closing(Bell()))
        printers = {one.health.dataset: _Printer(context, one.health.dataset, len(followers) > 1) for one in followers}
        with closing(follow(followers, bell, lambda text: warn(wrapped(f"warning: {text}", others="  ")))) as events:
            for one, told in events:
                printers[one.health.dataset].tell(one.pipeline, told)


class _Printer:
    """Prints the events of a follower on a dataset. `several`: names the dataset wherever it is not clear."""

    def __init__(self, context: typer.Context, dataset: str, several: bool) -> None:
        self._dataset, self._of = dataset, f"{dataset}: " if several else ""
        self._typed: Typed = typed(context, dataset)
        self._json, self._run = as_json(context), run_id(context)

    def tell(self, pipeline: Pipeline, told: Told) -> None:
        """Prints an event, if there is anything to say."""
        if self._json:
            for one in self._documents(told):
                print_json({"event": one.pop("event"), "dataset": self._dataset, **one})
        else:
            self._print(pipeline, told)

    def _documents(self, told: Told) -> list[dict[str, Any]]:
        match told:
            case DiscoveryReport():
                return [{"event": "discovered", **report_document(told)}] if told.registered else []
            case Drained(report, news):
                ends = [end_document(end, self._typed) for end in news]
                does = report.shredded or report.loaded or report.failed or report.put_back
                ended = {"event": "ended", "run_id": self._run, **document(report, self._typed), "ends": ends}
                return [ended] if does or news else []
            case Stuck(ends):
                return [{"event": "blocked", "ends": [end_document(end, self._typed) for end in ends]}]
            case Hindered(reason, pause):
                return [{"event": "hindered", "reason": reason, "seconds": round(pause, 1)}]
            case StandsBy(holder):
                return [{"event": "standing_by", "holder": holder}]
            case TookOver():
                return [{"event": "following", "run_id": self._run}]
            case _:
                return [event_document(told)]

    def _print(self, pipeline: Pipeline, told: Told) -> None:
        match told:
            case DiscoveryReport():
                if told.registered:
                    warn_of(told, pipeline, self._typed)
                    print_found(told, pipeline, self._typed)
            case Drained(report, news):
                if report.shredded or report.loaded or report.failed or report.put_back:
                    print_totals(report)
                self._print_ends(news)
            case Stuck(ends):
                self._print_ends(ends)
            case Hindered(reason, pause):
                warn(wrapped(f"warning: {self._of}{reason}. The next try is in {pause:.0f} s", others="  "))
            case StandsBy(holder):
                say(wrapped(f"… {self._of}standing by: {holder} follows this dataset", others="  "))
            case TookOver():
                say(f"{self._of}following; press Ctrl-C to end")
            case _:
                say(progress(told, pipeline.source.words, len(pipeline.targets) > 1))

    def _print_ends(self, ends: Sequence[FeedEnd]) -> None:
        print_ends(ends, self._typed, several=True)
