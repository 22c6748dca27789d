"""Pins the images of deploy/ by digest: `python scripts/pin_images.py [--check] FILE…`.

Tags move, digests do not. Each `FROM` of a Dockerfile and each `image:` of a compose file with a tag gets the digest that its
registry gives for the tag now: `NAME:TAG@sha256:…`. Images without a tag, and those that the repository builds, are left.

`--check` writes nothing. Exits 1 if an image has no digest, or if that of its tag changed; 75 if a registry cannot be asked.
`--registry URL` asks this registry for all images, for example a mirror.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

import httpx

HUB = "https://registry-1.docker.io"
KINDS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
"""The forms of an image's manifest, those for several machines first."""
UNREACHABLE = 75

_IMAGE = re.compile(
    r"^(?P<before>\s*(?:FROM\s+(?:--platform=\S+\s+)?|image:\s*))(?P<name>[a-z0-9][\w./-]*(?::\d+/[\w./-]+)?):(?P<tag>[\w.-]+)"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.MULTILINE,
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


class NoDigest(Exception):
    """A registry gave no digest. The message says which, and why."""


def pinned(text: str, digest: Callable[[str, str], str]) -> str:
    """The text with a digest at each image. `digest`: gives that of a name and a tag."""
    return _IMAGE.sub(lambda one: f"{one['before']}{one['name']}:{one['tag']}@{digest(one['name'], one['tag'])}", text)


def place(name: str, registry: str | None) -> tuple[str, str]:
    """The registry of an image, and the image's name there."""
    host, slash, rest = name.partition("/")
    if slash and ("." in host or ":" in host or host == "localhost"):
        return registry or f"https://{host}", rest
    return registry or HUB, name if slash else f"library/{name}"


def digest_of(name: str, tag: str, registry: str | None = None) -> str:
    """The digest of a tag. Raises NoDigest, and httpx.TransportError if the registry cannot be reached."""
    base, path = place(name, registry)
    url, headers = f"{base}/v2/{path}/manifests/{tag}", {"Accept": ", ".join(KINDS)}
    with httpx.Client(timeout=20, follow_redirects=True) as client:
        answer = client.head(url, headers=headers)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            answer = client.head(url, headers=headers | {"Authorization": f"Bearer {_token(client, answer)}"})
        found = answer.headers.get("Docker-Content-Digest", "")
        if answer.status_code != httpx.codes.OK or not re.fullmatch(r"sha256:[0-9a-f]{64}", found):
            raise NoDigest(f"{name}:{tag}: {url} answered {answer.status_code} without a digest")
    return found


def _token(client: httpx.Client, refused: httpx.Response) -> str:
    """A token for anonymous readers, from the place that the registry names."""
    told = dict(_CHALLENGE.findall(refused.headers.get("WWW-Authenticate", "")))
    if "realm" not in told:
        raise NoDigest(f"{refused.url}: the registry names no place for a token")
    asked = {name: told[name] for name in ("service", "scope") if name in told}
    answer = client.get(told["realm"], params=asked).raise_for_status().json()
    return answer.get("token") or answer["access_token"]


def main(arguments: list[str]) -> int:
    """Pins or checks the files. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--registry")
    parser.add_argument("files", nargs="+", type=Path)
    given = parser.parse_args(arguments)
    differ = False
    for file in given.files:
        text = file.read_text()
        try:
            wanted = pinned(text, lambda name, tag: digest_of(name, tag, given.registry))
        except httpx.TransportError as error:
            sys.stderr.write(f"{file}: the registry cannot be asked: {error}\n")
            return UNREACHABLE
        except (NoDigest, httpx.HTTPStatusError) as error:
            sys.stderr.write(f"{file}: {error}\n")
            return 1
        if wanted != text:
            differ = True
            sys.stdout.write(f"{file}: {'an image has another digest now, or none' if given.check else 'pinned'}\n")
            if not given.check:
                file.write_text(wanted)
    return int(differ and given.check)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
