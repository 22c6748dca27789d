"""Access to S3: the policy of the role with which COPY reads shredded objects and manifests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

_ANYWHERE = "s3://<bucket>/<prefix>"


def copy_policy(role: str, folders: Sequence[str]) -> Iterator[str]:
    """Yields the policy as lines of comments, for the folders in S3 among these."""
    places = [urlsplit(one) for one in dict.fromkeys(folders) if one.startswith("s3://")] or [urlsplit(_ANYWHERE)]
    objects = [f"arn:aws:s3:::{'/'.join(filter(None, (one.netloc, one.path.strip('/'))))}/*" for one in places]
    buckets = list(dict.fromkeys(f"arn:aws:s3:::{one.netloc}" for one in places))
    statements = [
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": objects},
        {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": buckets},
    ]
    yield f"-- The IAM policy that the role of COPY needs ({role}):"
    for line in json.dumps({"Version": "2012-10-17", "Statement": statements}, indent=2).splitlines():
        yield f"-- {line}"
