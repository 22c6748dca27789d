"""The policies of `deploy/aws/roles.yaml`, and whether they allow a call, as IAM decides it for the forms that they use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from manifest_platform_tests.aws.moto_templates import read
from manifest_platform_tests.aws.stacks import ACCOUNT, FOLDER, REGION

PSEUDO = {"AWS::Partition": "aws", "AWS::Region": REGION, "AWS::AccountId": ACCOUNT}


@dataclass(frozen=True)
class Call:
    """A call of AWS: an action on a resource. `context`: the key of a condition, and its values."""

    action: str
    resource: str
    context: tuple[str, tuple[str, ...]] | None = None


@dataclass(frozen=True)
class Permission:
    """An action that a statement of a policy allows."""

    policy: str
    statement: str
    action: str


@dataclass(frozen=True)
class Policy:
    """A policy with all references resolved."""

    name: str
    statements: tuple[dict[str, Any], ...]

    def allowing(self, call: Call) -> set[Permission]:
        """The permissions that allow a call; empty if none does."""
        return {
            Permission(self.name, one["Sid"], action)
            for one in self.statements
            for action in one["Action"]
            if action == call.action
            and any(map(_pattern(call.resource), _listed(one["Resource"])))
            and _holds(one.get("Condition", {}), dict([call.context]) if call.context else {})
        }

    @property
    def permissions(self) -> set[Permission]:
        """All that it allows."""
        return {Permission(self.name, one["Sid"], action) for one in self.statements for action in one["Action"]}


def _pattern(value: str) -> Any:
    """A function that says whether a pattern with `*` and `?` fits a value."""
    return lambda pattern: re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), value, re.DOTALL)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _holds(conditions: Mapping[str, Any], context: Mapping[str, tuple[str, ...]]) -> bool:
    for operator, keys in conditions.items():
        for key, patterns in keys.items():
            values = context.get(key, ())
            match operator:
                case "StringEquals":
                    holds = bool(values) and all(value in _listed(patterns) for value in values)
                case "StringLike" | "ForAllValues:StringLike":
                    every = all(any(map(_pattern(value), _listed(patterns))) for value in values)
                    holds = every and (bool(values) or operator.startswith("ForAllValues"))
                case _:
                    raise NotImplementedError(operator)
            if not holds:
                return False
    return True


def policies(name: str, exports: Mapping[str, str], datasets: Iterable[str] = ("*",)) -> dict[str, Policy]:
    """The policies of duties, by the names of their resources without `Policy`. `exports`: what they import."""
    found = read(FOLDER / "roles.yaml")["Resources"]
    parameters = {"Name": name, "Datasets": list(datasets), **PSEUDO}
    return {
        key.removesuffix("Policy"): Policy(
            key.removesuffix("Policy"),
            tuple(_resolved(one["Properties"]["PolicyDocument"]["Statement"], parameters, exports)),
        )
        for key, one in found.items()
        if one["Type"] == "AWS::IAM::ManagedPolicy"
    }


def attached(role: str) -> list[str]:
    """The policies of a role, by the names of their resources without `Policy`."""
    arns = read(FOLDER / "roles.yaml")["Resources"][f"{role}Role"]["Properties"]["ManagedPolicyArns"]
    return [one["Ref"].removesuffix("Policy") for one in arns]


def _resolved(node: Any, parameters: Mapping[str, Any], exports: Mapping[str, str]) -> Any:
    def inner(one: Any) -> Any:
        return _resolved(one, parameters, exports)

    match node:
        case {"Ref": str(name)}:
            return parameters[name]
        case {"Fn::ImportValue": value}:
            return exports[inner(value).removeprefix(f"{parameters['Name']}-")]
        case {"Fn::Sub": [str(text), dict(more)]}:
            return _filled(text, {**parameters, **inner(more)})
        case {"Fn::Sub": str(text)}:
            return _filled(text, parameters)
        case {"Fn::GetAtt": [str(name), "Arn"]}:
            return f"arn:aws:iam::{ACCOUNT}:role/{parameters['Name']}-{name.removesuffix('Role').lower()}"
        case dict():
            return {key: inner(value) for key, value in node.items()}
        case list():
            return [inner(value) for value in node]
    return node


def _filled(text: str, values: Mapping[str, Any]) -> str:
    return re.sub(r"\$\{([\w:]+)\}", lambda found: str(values[found[1]]), text)
