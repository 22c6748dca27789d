"""Compares the calls that programs made with the policies of a role, and remembers which permissions a call needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from manifest_platform_tests.aws.deployment import Deployment
from manifest_platform_tests.aws.policies import Call, Permission, attached

WORKER = "Worker"
"""The role of Spark's executors, whose calls are recorded apart."""


@dataclass
class Held:
    """The result of comparing calls with policies. `roles`: those whose policies allow all calls that were made."""

    roles: set[str] = field(default_factory=set)
    used: set[Permission] = field(default_factory=set)
    permissions: set[Permission] = field(default_factory=set)

    def hold(self, deployment: Deployment, role: str, work: Callable[[], object], *without: str) -> None:
        """Does some work, and holds its calls against a role; and those of Spark's workers against the role Worker, too.

        `without`: actions that are refused while it works, because it must do without them. Raises AssertionError if nothing
        was recorded, and for a call that no policy allows.
        """
        deployment.start(*without)
        work()
        calls, of_workers = deployment.calls.calls, deployment.of_workers.calls
        assert calls, f"{role}: nothing was recorded"
        lacking = self._lacking(deployment, role, calls | of_workers)
        if of_workers:
            lacking += self._lacking(deployment, WORKER, of_workers)
        assert not lacking, "\n".join(lacking)
        self.roles |= {role, WORKER} if of_workers else {role}

    def _lacking(self, deployment: Deployment, role: str, calls: set[Call]) -> list[str]:
        policies = [deployment.policies[name] for name in attached(role)]
        allowing = {call: {one for policy in policies for one in policy.allowing(call)} for call in calls}
        self.used |= {permission for by in allowing.values() for permission in by}
        self.permissions |= {permission for policy in policies for permission in policy.permissions}
        return sorted(f"{role} may not: {call}" for call, by in allowing.items() if not by)

    @property
    def unused(self) -> dict[str, list[str]]:
        """The actions that no call needed, by their policy."""
        found: dict[str, list[str]] = {}
        for one in sorted(self.permissions - self.used, key=str):
            found.setdefault(one.policy, []).append(f"{one.statement} {one.action}")
        return found
