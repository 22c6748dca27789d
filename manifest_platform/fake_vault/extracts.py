"""The extracts of the simulated vault: their columns, and values that careless readers change.

This module holds shapes and vocabulary. `writer` and `simulation` change the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True)
class Field:
    """A column of an extract. `type`: Vault's name of it (String, LongText, Number, Date, DateTime, Boolean, Picklist, …).

    `related`: the table that a Relationship points at. `standard`: True for the columns that come before those in alphabetical
    order. `says`: the type in the vault's metadata, if that is wrong.
    """

    name: str
    type: str = "String"
    related: str | None = None
    standard: bool = False
    says: str | None = None


@dataclass(frozen=True)
class Extract:
    """A kind of rows: `Component.name`, the columns of its key, and all columns in the order of the files."""

    name: str
    fields: tuple[Field, ...]
    key: tuple[str, ...] = ("id",)

    def __post_init__(self) -> None:
        ordered = sorted(self.fields, key=lambda field: (not field.standard, "" if field.standard else field.name))
        object.__setattr__(self, "fields", tuple(ordered))

    @property
    def component(self) -> str:
        """The part before the dot: the folder in an archive."""
        return self.name.partition(".")[0]

    @property
    def table(self) -> str:
        """The part after the dot, in lower case: the table in a warehouse."""
        return self.name.partition(".")[2].lower()

    @property
    def label(self) -> str:
        """The name for people."""
        return label_of(self.table)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(field.name for field in self.fields)


def label_of(name: str) -> str:
    """Returns a name for people, as `Therapeutic area` for `therapeutic_area__c`."""
    return name.partition("__")[0].replace("_", " ").capitalize()


def fields(text: str, standard: bool = False) -> tuple[Field, ...]:
    """Parses fields in their short form: `name Type` or `name Type:related`, separated by commas."""
    found = []
    for part in text.split(","):
        name, kind = part.split()
        kind, _, related = kind.partition(":")
        found.append(Field(name, kind, related or None, standard))
    return tuple(found)


def an_object(table: str, own: str) -> Extract:
    """Returns the extract of a vault object: the columns of every object, and its own."""
    return Extract(f"Object.{table}", _EVERY_OBJECT + fields(own))


_EVERY_OBJECT = fields(
    "id String, modified_date__v DateTime, name__v String, status__v MultiPicklist, created_by__v Relationship:user__sys, "
    "created_date__v DateTime, modified_by__v Relationship:user__sys, global_id__sys String, link__sys String",
    standard=True,
)

METADATA = Extract(
    "Metadata.metadata",
    fields(
        "modified_date DateTime, extract String, extract_label String, column_name String, column_label String, type String, "
        "length String, related_extract String, is_formula String",
        standard=True,
    ),
    key=("extract", "column_name"),
)
"""The extract that describes the columns of all other extracts."""

PICKLIST = Extract(
    "Picklist.picklist__sys",
    fields("modified_date__v DateTime, object String, object_field String, picklist_value_name String", standard=True)
    + fields("picklist_value_label String, status__v String"),
    key=("object", "object_field", "picklist_value_name"),
)

VERSION = Extract(
    "Document.document_version__sys",
    fields(
        "id String, modified_date__v DateTime, version_id String, doc_id String, major_version_number__v Number, "
        "minor_version_number__v Number, name__v String",
        standard=True,
    )
    + fields(
        "archive__v Boolean, description__c LongText, filename__v String, latest_version__v Boolean, lifecycle__v String, "
        "product__v MultiRelationship:product__v, rendition_file String, size__v Number, source_file String, "
        "status__v Picklist, title__v String, type__v String, version_created_by__v Relationship:user__sys"
    )
    + (Field("document_number__v", "String", says="Number"),),
)

RELATIONSHIP = Extract(
    "Document.document_relationships__sys",
    fields("id String, modified_date__v DateTime", standard=True)
    + fields(
        "relationship_type__v String, source_doc_id__v String, source_major_version__v Number, source_minor_version__v Number, "
        "source_vault_id__v String, target_doc_id__v String"
    ),
)

USER = an_object("user__sys", "email__sys String, last_login__sys DateTime, locale__sys String, timezone__sys String")

CHANGING: dict[Extract, int] = {
    an_object(
        "product__v",
        "active_from__c Date, assayed_at__c DateTime, description__c LongText, generic_name__c String, mass__c Number, "
        "markets__c MultiPicklist, parent__c Relationship:product__v, price__c Number, serial_number__c String, "
        "sterile__c Boolean, therapeutic_area__c Picklist",
    ): 8,
    an_object(
        "study__v",
        "budget__c Number, investigators__c MultiRelationship:user__sys, phase__c Picklist, "
        "product__v Relationship:product__v, protocol__c LongText, randomised__c Boolean, started__c Date",
    ): 6,
    an_object("3d_model__c", "2nd_name__c String, order__c Number, product__v Relationship:product__v"): 2,
    an_object("metadata_mapping__c", "from__c String, group__c String, to__c String"): 1,
    an_object("soft_deletes_policy__c", "days__c Number, enabled__c Boolean"): 1,
    an_object("vault_component__v", "component_type__v String, label__v String"): 1,
    VERSION: 6,
    RELATIONSHIP: 2,
    PICKLIST: 2,
    Extract(
        "Workflow.workflow__sys",
        fields("id String, modified_date__v DateTime", standard=True)
        + fields(
            "completed_date__sys DateTime, label__sys String, owner__sys Relationship:user__sys, started_date__sys DateTime, "
            "status__sys Picklist"
        ),
    ): 2,
    Extract(
        "Workflow.workflow_item__sys",
        fields("id String, modified_date__v DateTime", standard=True)
        + fields(
            "document_version__sys Relationship:document_version__sys, item_type__sys String, "
            "object_record__sys Relationship:product__v, workflow__sys Relationship:workflow__sys"
        ),
    ): 2,
    Extract(
        "Workflow.workflow_task__sys",
        fields("id String, modified_date__v DateTime", standard=True)
        + fields("assignee__sys Relationship:user__sys, due_date__sys Date, instructions__sys LongText, status__sys Picklist"),
    ): 2,
    Extract(
        "Workflow.workflow_task_item__sys",
        fields("id String, modified_date__v DateTime", standard=True)
        + fields("verdict__sys Picklist, workflow_task__sys Relationship:workflow_task__sys"),
    ): 1,
}
"""The extracts whose rows are created, changed and deleted, with the relative frequency of changes."""

LEGACY = Extract(
    "Workflow.workflow_legacy__sys",
    fields("id String, modified_date__v DateTime", standard=True)
    + fields("completed_date__sys DateTime, label__sys String, status__sys Picklist"),
)
"""Ended workflows of the old kind: a snapshot holds only those that ended within a day, and increments hold none."""

_AUDIT = "id String, timestamp DateTime, user_id Relationship:user__sys, user_name String, action String, item String"
LOGINS, SYSTEM, OBJECTS = (
    Extract(f"Log.{name}", fields(_AUDIT, standard=True) + fields(own))
    for name, own in (
        ("login_audit_trail__sys", "source_ip String, succeeded Boolean"),
        ("system_audit_trail__sys", "new_value LongText, old_value LongText"),
        ("object_audit_trail__sys", "object_name String, record_id String"),
    )
)
LOGS = (LOGINS, SYSTEM, OBJECTS)
"""The audit trails."""

TRICKY_TEXTS = (
    "00123",
    "1.10",
    "NA",
    "N/A",
    "null",
    "NULL",
    "None",
    "nan",
    "true",
    "\\N",
    "ends with a backslash \\",
    " kept blanks ",
    "commas, of course",
    'she said "no"',
    '"',
    "it's",
    "first line\nsecond line",
    "first line\r\nsecond line",
    "first line\rsecond line",
    "\n",
    "Zürich, 東京 🧪",
    "e\u0301 is not é",
    "no\u2028line\u0085here",
    "a\tb;c|d",
    "=1+1",
    "2026-01-01",
    "long enough for any guess at a width " * 12,
)
"""Texts that a careless CSV reader would change."""

TRICKY_NUMBERS = tuple(
    Decimal(text)
    for text in (
        "1.10",
        "0.10",
        "0",
        "-0.5",
        "100",
        "1234567890123456789012345",
        "-9999999999999999999999999.99",
        "1234567890123456.0123456789",
        "0.0000000001",
    )
)
"""Numbers that a float, or a decimal of small scale, would change."""
