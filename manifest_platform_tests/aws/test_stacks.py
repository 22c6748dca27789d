"""The stacks are deployed to moto in the script's order, and what exists then is what the documents promise."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from manifest_platform.manifest.stores.dynamodb.table import check_table
from manifest_platform.notices import kind_of
from manifest_platform.notices.s3_events import objects_of
from manifest_platform_tests.aws import stacks
from manifest_platform_tests.aws.moto_templates import LACKING, for_moto, read
from manifest_platform_tests.aws.stacks import ACCOUNT, FOLDER, REGION, TEMPLATES, Deployed

pytestmark = pytest.mark.long

DATA = ("landing", "shredded", "merged", "records", "artifacts")
SERVICES = ("Code", "Daemon", "Webserver", "Follower")
BUCKETS = {kind: f"manifest-platform-{kind}-{ACCOUNT}-{REGION}" for kind in (*DATA, "requests")}


@dataclass(frozen=True)
class Account:
    """An account in moto with all stacks."""

    deployed: list[Deployed]

    def client(self, service: str) -> Any:
        return boto3.client(service, region_name=REGION)

    def exports(self) -> dict[str, str]:
        pages = self.client("cloudformation").get_paginator("list_exports").paginate()
        return {one["Name"]: one["Value"] for page in pages for one in page["Exports"]}


def properties(template: str, resource: str) -> dict[str, Any]:
    """The properties of a resource as its template gives them, for what moto's CloudFormation passes over."""
    return read(FOLDER / f"{template}.yaml")["Resources"][resource]["Properties"]


def policy_of(template: str, resource: str) -> list[dict[str, Any]]:
    return properties(template, resource)["PolicyDocument"]["Statement"]


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        cloud = boto3.client("cloudformation", region_name=REGION)
        yield Account(stacks.deploy(cloud, tmp_path_factory.mktemp("deploy")))


def test_the_script_deploys_every_template_after_those_that_it_refers_to(account: Account) -> None:
    assert {one.template for one in account.deployed} == set(TEMPLATES)
    told = account.client("cloudformation").describe_stacks()["Stacks"]
    assert {one["StackName"]: one["StackStatus"] for one in told} == {one.name: "CREATE_COMPLETE" for one in account.deployed}


@pytest.mark.parametrize("call", [(), ("base", "more"), ("services", "0.2.0"), ("everything",)])
def test_the_script_tells_how_it_is_used(call: tuple[str, ...], tmp_path: Path) -> None:
    ended = stacks.ran(call, tmp_path)
    assert ended.returncode == 2 and not (tmp_path / "notes").exists()
    usages = [line.split()[1] for line in ended.stderr.splitlines()]
    assert usages == [one[0] for one in (("base",), ("services",), ("jobs",), ("wake",), ("dataset",))]


def test_a_second_installation_has_names_of_its_own(account: Account, tmp_path: Path) -> None:
    others = {one.name for one in stacks.deploy(account.client("cloudformation"), tmp_path, "second")}
    assert others == {one.name.replace("manifest-platform", "second") for one in account.deployed}
    exports = account.exports()
    assert {name for name in exports if name.startswith("second-")} == {
        name.replace("manifest-platform", "second") for name in exports if name.startswith("manifest-platform-")
    }


def test_what_moto_lacks_is_listed_once_and_used() -> None:
    used = {one["Type"] for template in TEMPLATES for one in read(template)["Resources"].values()}
    assert used >= LACKING
    assert LACKING - {"AWS::RDS::DBParameterGroup"} == {one for one in used if _model_of(one) is None}


def test_the_table_is_as_the_manifest_wants_it(account: Account) -> None:
    table = account.client("dynamodb").describe_table(TableName="manifest-platform")["Table"]
    assert table["StreamSpecification"] == {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    assert table["DeletionProtectionEnabled"] is True
    # moto's CloudFormation passes over encryption and recovery, so the same settings make a table by the API.
    wanted = properties("table", "Table")
    recovery = wanted.pop("PointInTimeRecoverySpecification")
    encryption = wanted.pop("SSESpecification")
    assert encryption["KMSMasterKeyId"] == {"Fn::ImportValue": {"Fn::Sub": "${Name}-data-key"}}
    client = account.client("dynamodb")
    wanted["StreamSpecification"] |= {"StreamEnabled": True}
    client.create_table(
        **{**wanted, "TableName": "by-the-api"},
        SSESpecification={"Enabled": encryption["SSEEnabled"], "SSEType": encryption["SSEType"]},
    )
    client.update_continuous_backups(
        TableName="by-the-api",
        PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": recovery["PointInTimeRecoveryEnabled"]},
    )
    assert check_table(f"dynamodb://by-the-api?region={REGION}") == []


@pytest.mark.parametrize("kind", BUCKETS)
def test_no_bucket_is_public_or_forgets_at_once(kind: str, account: Account) -> None:
    account.client("s3").head_bucket(Bucket=BUCKETS[kind])
    given = properties("buckets", kind.title())
    assert given["VersioningConfiguration"] == {"Status": "Enabled"}
    [rule] = given["LifecycleConfiguration"]["Rules"]
    assert rule["Status"] == "Enabled" and rule["AbortIncompleteMultipartUpload"] and rule["NoncurrentVersionExpiration"]
    assert ("ExpirationInDays" in rule) == (kind == "requests"), "the platform alone removes data"
    assert len(given["PublicAccessBlockConfiguration"]) == 4 and all(given["PublicAccessBlockConfiguration"].values())
    [plain] = [one for one in policy_of("buckets", f"{kind.title()}Policy") if one["Effect"] == "Deny"]
    assert plain["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


@pytest.mark.parametrize("kind", DATA)
def test_data_are_encrypted_with_the_account_s_key_and_requests_are_logged(kind: str, account: Account) -> None:
    s3, name = account.client("s3"), BUCKETS[kind]
    [rule] = s3.get_bucket_encryption(Bucket=name)["ServerSideEncryptionConfiguration"]["Rules"]
    wanted = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": account.exports()["manifest-platform-data-key"]}
    assert rule["ApplyServerSideEncryptionByDefault"] == wanted
    given = properties("buckets", kind.title())
    [rule] = given["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["BucketKeyEnabled"] is True, "or each object would cost a call of KMS"
    assert given["LoggingConfiguration"] == {"DestinationBucketName": {"Ref": "Requests"}, "LogFilePrefix": f"{kind}/"}


def test_keys_are_rotated(account: Account) -> None:
    kms = account.client("kms")
    keys = [value for name, value in account.exports().items() if name.endswith("-key")]
    assert len(keys) >= 2 and all(kms.get_key_rotation_status(KeyId=key)["KeyRotationEnabled"] for key in keys)


def test_no_way_leads_out_of_the_network(account: Account) -> None:
    ec2, network = account.client("ec2"), account.exports()["manifest-platform-network"]
    own = [{"Name": "vpc-id", "Values": [network]}]
    assert (
        ec2.describe_internet_gateways(Filters=[{"Name": "attachment.vpc-id", "Values": [network]}])["InternetGateways"] == []
    )
    assert ec2.describe_nat_gateways(Filters=own)["NatGateways"] == []
    routes = [route for table in ec2.describe_route_tables(Filters=own)["RouteTables"] for route in table["Routes"]]
    assert {route.get("GatewayId", "") for route in routes if "DestinationCidrBlock" in route} == {"local"}
    subnets = ec2.describe_subnets(Filters=own)["Subnets"]
    assert len({one["AvailabilityZone"] for one in subnets}) == 3
    assert not any("MapPublicIpOnLaunch" in properties("network", f"Subnet{zone}") for zone in "ABC")


def test_there_is_an_endpoint_for_each_service_that_the_programs_call(account: Account) -> None:
    ec2, network = account.client("ec2"), account.exports()["manifest-platform-network"]
    found = ec2.describe_vpc_endpoints(Filters=[{"Name": "vpc-id", "Values": [network]}])["VpcEndpoints"]
    services = {one["ServiceName"].removeprefix(f"com.amazonaws.{REGION}.") for one in found}
    called = {action.partition(":")[0] for document in _policies(account).values() for action in _actions(document)}
    beyond = {"emr-serverless", "sts", "logs", "monitoring", "ecr.api", "ecr.dkr", "ssm", "ssmmessages", "dynamodb-streams"}
    assert services == (called - {"iam"}) | beyond
    assert all(one["PrivateDnsEnabled"] for one in found if one["VpcEndpointType"] == "Interface")


def test_what_completes_a_directory_reaches_a_queue_that_a_follower_names(account: Account) -> None:
    events, sqs = account.client("events"), account.client("sqs")
    pattern = json.loads(events.describe_rule(Name="manifest-platform-landed")["EventPattern"])
    assert pattern["detail"]["bucket"] == {"name": [BUCKETS["landing"]]}
    assert pattern["detail"]["object"] == {"key": [{"wildcard": "*"}]}
    [target] = events.list_targets_by_rule(Rule="manifest-platform-landed")["Targets"]
    url = sqs.get_queue_url(QueueName="manifest-platform-landed")["QueueUrl"]
    asked = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert target["Arn"] == asked["QueueArn"]
    assert json.loads(asked["RedrivePolicy"])["deadLetterTargetArn"].endswith(":manifest-platform-unheard")
    named = f"sqs://manifest-platform-landed?region={REGION}"
    assert kind_of(named).checked(named) == named
    event = {"source": "aws.s3", "detail": {"bucket": {"name": BUCKETS["landing"]}, "object": {"key": "run=1/_SUCCESS"}}}
    assert objects_of(json.dumps(event)) == [f"s3://{BUCKETS['landing']}/run=1/_SUCCESS"]


def test_the_lambda_hears_the_queue_and_the_stream(account: Account) -> None:
    client, exports = account.client("lambda"), account.exports()
    found = client.list_event_source_mappings()["EventSourceMappings"]
    sources = {one["EventSourceArn"] for one in found if one["FunctionArn"].endswith(":manifest-platform-wake")}
    assert sources == {exports["manifest-platform-queue"], exports["manifest-platform-stream"]}
    code = read(FOLDER / "wake.yaml")["Resources"]["Function"]["Properties"]
    assert code["Code"]["S3Key"] == {"Ref": "CodeKey"}


def test_images_keep_their_tags(account: Account) -> None:
    found = account.client("ecr").describe_repositories()["repositories"]
    assert {one["imageTagMutability"] for one in found} == {"IMMUTABLE"}


def test_services_run_the_tag_without_an_address_and_each_with_its_own_role(account: Account) -> None:
    ecs = account.client("ecs")
    services = {"code": "code", "daemon": "ui", "webserver": "ui", "follower": "follower"}
    for name, role in services.items():
        [found] = ecs.describe_services(cluster="manifest-platform", services=[name])["services"]
        assert found["taskDefinition"].rpartition(":")[0].endswith(f"/manifest-platform-{name}")
        given = properties("services", name.title())
        assert given["NetworkConfiguration"]["AwsvpcConfiguration"]["AssignPublicIp"] == "DISABLED"
        _holds_task(ecs, name, role)
    _holds_task(ecs, "operator", "operator")


def _holds_task(ecs: Any, name: str, role: str) -> None:
    task = ecs.describe_task_definition(taskDefinition=f"manifest-platform-{name}")["taskDefinition"]
    [container] = task["containerDefinitions"]
    assert properties("services", f"{name.title()}Task")["TaskRoleArn"] == {
        "Fn::ImportValue": {"Fn::Sub": f"${{Name}}-{role}-role"}
    }
    assert container["image"].endswith("/manifest-platform:0.2.0")
    assert container["user"] == "manifest-platform"
    assert container["readonlyRootFilesystem"] is (name != "webserver"), "a session with the webserver's container writes"
    assert ("healthCheck" in container) == (name != "operator")
    given = {one["name"] for one in container.get("secrets", [])}
    assert given == (set() if name in ("follower", "operator") else {"DAGSTER_PG_USERNAME", "DAGSTER_PG_PASSWORD"})


def test_dagster_s_database_cannot_be_reached_from_outside(account: Account) -> None:
    [found] = account.client("rds").describe_db_instances()["DBInstances"][:1]
    assert not found["PubliclyAccessible"] and found["StorageEncrypted"] and found["MultiAZ"]
    assert properties("instance", "Database")["DeletionProtection"] is True


def test_jobs_of_glue_have_no_memory_of_their_own_and_end_after_the_platform() -> None:
    jobs = {name: one["Properties"] for name, one in read(FOLDER / "jobs.yaml")["Resources"].items() if "::Job" in one["Type"]}
    for one in jobs.values():
        assert one["DefaultArguments"]["--job-bookmark-option"] == "job-bookmark-disable"
        assert one["MaxRetries"] == 0, "the manifest decides what is tried again"
    assert (jobs["Drain"]["WorkerType"], jobs["Full"]["WorkerType"]) == ("G.2X", "G.4X")
    drained, full = (jobs[name]["Timeout"] for name in ("Drain", "Full"))
    assert drained >= 50 + (2 + 2) * 60, "drain.max_seconds, then the item at hand: limits of shred and load"
    assert full >= 12 * 60, "limits.full_hours"


def test_the_warehouse_is_private_and_its_role_only_reads() -> None:
    found = read(FOLDER / "warehouse.yaml")["Resources"]
    assert found["Workgroup"]["Properties"]["PubliclyAccessible"] is False
    assert found["Workgroup"]["Properties"]["EnhancedVpcRouting"] is True
    actions = [
        action for policy in found["CopyRole"]["Properties"]["Policies"] for action in _actions(policy["PolicyDocument"])
    ]
    assert all(re.match(r"\w+:(Get|List|BatchGet|Decrypt)", action) for action in actions), actions


ALARMS = {
    "Unheard": ("AWS/SQS ApproximateNumberOfMessagesVisible", "notices.yaml", "Unheard"),
    "Waiting": ("AWS/SQS ApproximateAgeOfOldestMessage", "notices.yaml", "Landed"),
    "MissedNotices": ("AWS/SQS ApproximateNumberOfMessagesVisible", "wake.yaml", "Missed"),
    "WakeErrors": ("AWS/Lambda Errors", "wake.yaml", "Function"),
    "Throttled": ("AWS/DynamoDB ThrottledRequests", "table.yaml", "Table"),
    "TableErrors": ("AWS/DynamoDB SystemErrors", "table.yaml", "Table"),
    "DagsterDisk": ("AWS/RDS FreeStorageSpace", "instance.yaml", "Database"),
    "WarehouseBusy": ("AWS/Redshift-Serverless QueriesQueued", "warehouse.yaml", "Workgroup"),
    **{f"{name}Gone": ("ECS/ContainerInsights RunningTaskCount", "services.yaml", name) for name in SERVICES},
}
"""Each alarm: what it measures, and the resource that it is about."""


def test_an_alarm_is_told_and_its_subject_exists() -> None:
    found = {}
    for template, told in (("alarms.yaml", {"Ref": "Told"}), ("wake.yaml", {"Fn::ImportValue": {"Fn::Sub": "${Name}-alarms"}})):
        resources = read(FOLDER / template)["Resources"].items()
        alarms = {name: one["Properties"] for name, one in resources if one["Type"].endswith("Alarm")}
        assert all(one["AlarmActions"] == one["OKActions"] == [told] for one in alarms.values())
        found |= alarms
    assert {name: f"{one['Namespace']} {one['MetricName']}" for name, one in found.items()} == {
        name: measured for name, (measured, _, _) in ALARMS.items()
    }
    for name, (_, template, subject) in ALARMS.items():
        resource = read(FOLDER / template)["Resources"][subject]["Properties"]
        service = [one["Value"] for one in found[name]["Dimensions"] if one["Name"] == "ServiceName"]
        assert service == ([resource["ServiceName"]] if name.endswith("Gone") else [])


def _policies(account: Account) -> dict[str, dict[str, Any]]:
    """The documents of the policies of duties, by name."""
    iam = account.client("iam")
    found = {}
    for one in iam.list_policies(Scope="Local")["Policies"]:
        version = iam.get_policy_version(PolicyArn=one["Arn"], VersionId=one["DefaultVersionId"])
        if one["PolicyName"].startswith("manifest-platform-"):
            found[one["PolicyName"].removeprefix("manifest-platform-")] = version["PolicyVersion"]["Document"]
    return found


def _model_of(type_: str) -> object:
    from moto.cloudformation.parsing import resource_class_from_type

    return resource_class_from_type(type_)


def _actions(document: dict[str, Any]) -> list[str]:
    return [action for one in document["Statement"] for action in one["Action"]]


def test_no_permission_is_a_wildcard(account: Account) -> None:
    for name, document in _policies(account).items():
        for one in document["Statement"]:
            assert one["Effect"] == "Allow" and not any("*" in action for action in one["Action"]), name
            assert one["Resource"] != "*", f"{name}: {one['Sid']}"


def test_a_template_that_refers_to_what_is_not_deployed_is_refused(account: Account) -> None:
    text = for_moto(FOLDER / "table.yaml").replace("-data-key", "-no-such-key").replace("manifest-platform", "third")
    with pytest.raises(
        account.client("cloudformation").exceptions.ClientError, match="No export named third-no-such-key found"
    ):
        account.client("cloudformation").create_stack(StackName="third-table", TemplateBody=text)
