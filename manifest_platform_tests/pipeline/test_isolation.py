"""Isolation of what kills its Spark job, on a work that is played."""

from __future__ import annotations

from collections.abc import Sequence

from manifest_platform.pipeline.isolation import End, Isolation, NotCharged, Work


class Played(Work[str, str]):
    """Work whose parts named `bad…` kill their job. `sound`: whether there is something to do again that Spark does."""

    name = "parts"

    def __init__(self, sound: bool | None) -> None:
        self.sound = sound
        self.done: list[str] = []

    def run(self, parts: Sequence[str]) -> list[str]:
        self.done.append("+".join(parts))
        dies = any(part.startswith("bad") for part in parts)
        return ["died" if dies else "done"] * len(parts)

    def end(self, part: str, result: str) -> tuple[End, str]:
        return (End.DIED, "its worker is gone") if result == "died" else (End.DONE, "")

    def control(self) -> bool | None:
        self.done.append("control")
        return self.sound

    def title(self, part: str) -> str:
        return part


def test_a_part_that_dies_alone_twice_beside_work_that_succeeds_is_at_fault() -> None:
    work = Played(sound=True)
    assert dict(Isolation(work).results(["bad"])) == {"bad": "died"}
    assert work.done == ["bad", "control", "bad", "control"]


def test_what_can_be_done_again_is_searched_for_once_if_there_is_nothing() -> None:
    """A search reads hundreds of items of each feed and opens directories: an only directory cost three."""
    work = Played(sound=None)
    [(part, result)] = Isolation(work).results(["bad"])
    assert part == "bad" and isinstance(result, NotCharged)
    assert "no other work shows that the cluster is sound" in result.reason
    assert work.done == ["bad", "control", "bad"]


def test_it_is_searched_for_again_after_a_part_was_done() -> None:
    work = Played(sound=None)
    results = dict(Isolation(work).results(["bad 1", "good"]))
    assert results["good"] == "done" and isinstance(results["bad 1"], NotCharged)
    assert work.done == ["bad 1+good", "bad 1", "control", "good", "bad 1", "control"]
