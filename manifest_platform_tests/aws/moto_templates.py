"""Templates as moto takes them: without the resources that it lacks, whose references become invented values."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path
from typing import Any

from cfnlint.decode import cfn_yaml

LACKING = {
    "AWS::CloudWatch::Alarm",
    "AWS::EC2::SecurityGroupEgress",
    "AWS::EMRServerless::Application",
    "AWS::Glue::Connection",
    "AWS::Glue::Database",
    "AWS::Glue::Job",
    "AWS::Glue::SecurityConfiguration",
    "AWS::RDS::DBParameterGroup",  # moto makes one, but a reference to it is no name
    "AWS::RedshiftServerless::Namespace",
    "AWS::RedshiftServerless::Workgroup",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::TopicPolicy",
    "AWS::SQS::QueuePolicy",
    "AWS::SecretsManager::Secret",
    "AWS::ServiceDiscovery::PrivateDnsNamespace",
    "AWS::ServiceDiscovery::Service",
}
"""The types of resources that moto's CloudFormation lacks: cfn-lint and checkov alone look at them."""


def read(template: Path) -> dict[str, Any]:
    """A template, with functions in their long form."""
    return json.loads(json.dumps(cfn_yaml.load(str(template))))


def invented(type_: str, name: str) -> str:
    """The value of every reference to a resource that moto lacks."""
    return f"arn:aws:{type_.split('::')[1].lower()}:eu-west-1:123456789012:{name}"


def for_moto(template: Path) -> str:
    """The template as JSON, without what moto lacks."""
    found = read(template)
    absent = {name: one["Type"] for name, one in found["Resources"].items() if one["Type"] in LACKING}
    parameters = {name: one.get("Default") for name, one in found["Parameters"].items()}
    kept = {name: one for name, one in found["Resources"].items() if name not in absent}
    return json.dumps(_replaced({**found, "Resources": kept}, absent, parameters))


def _replaced(node: Any, absent: dict[str, str], parameters: dict[str, Any]) -> Any:
    match node:
        case {"Ref": str(name)} if name in absent:
            return invented(absent[name], name)
        case {"Fn::GetAtt": [str(name), *_]} if name in absent:
            return invented(absent[name], name)
        case {"Fn::Select": [index, {"Fn::Cidr": [{"Ref": str(network)}, _, bits]}]}:
            subnets = ipaddress.ip_network(parameters[network]).subnets(new_prefix=32 - int(bits))
            return [str(next(subnets)) for _ in range(int(index) + 1)][-1]
        case dict():
            given = {key: value for key, value in node.items() if key != "DBParameterGroupName"}
            return {key: _replaced(value, absent, parameters) for key, value in given.items()}
        case list():
            return [_replaced(value, absent, parameters) for value in node]
    return node
