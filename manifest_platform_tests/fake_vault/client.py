"""Plain calls of Vault's API, to test the answers of the fake Vault."""

from __future__ import annotations

import hashlib
from typing import Any

import httpx

from manifest_platform.fake_vault import FakeVault, Window

API = "/api/v25.3"
FILES = f"{API}/services/directdata/files"


class Client:
    """A client that is logged in at a fake Vault."""

    def __init__(self, vault: FakeVault) -> None:
        self.vault = vault
        self.http = httpx.Client(base_url=vault.url, trust_env=False, verify=False)  # certificates take a while to read
        self.session = self.log_in()["sessionId"]

    def log_in(self, **form: str) -> dict[str, Any]:
        """Returns the answer to a login by password."""
        whole = {"username": self.vault.settings.user, "password": self.vault.settings.password} | form
        return self.http.post(f"{API}/auth", data=whole).json()

    def get(self, path: str, **query: str) -> httpx.Response:
        """Makes a call in the session."""
        return self.http.get(path, params=query, headers={"Authorization": self.session})

    def files(self, **query: str) -> dict[str, dict[str, Any]]:
        """Returns the entries of the listing by name."""
        told = self.get(FILES, **query).json()
        assert told["responseStatus"] == "SUCCESS", told
        assert told["responseDetails"]["total"] == len(told["data"])
        return {entry["name"]: entry for entry in told["data"]}

    def failure(self, path: str, **query: str) -> str:
        """Returns the error type of a failed call, which has HTTP 200."""
        response = self.get(path, **query)
        assert response.status_code == 200
        assert response.json()["responseStatus"] == "FAILURE"
        return response.json()["errors"][0]["type"]

    def entry(self, window: Window) -> dict[str, Any]:
        """Returns the entry of a window in the listing."""
        return self.files()[window.name(self.vault.settings.vault_id)]

    def download(self, window: Window) -> bytes:
        """Downloads all parts of a window's archive and checks them against the listing."""
        return b"".join(self.part(part) for part in self.entry(window)["filepart_details"])

    def part(self, part: dict[str, Any]) -> bytes:
        """Downloads a part and checks it against the listing."""
        response = self.get(f"{FILES}/{part['name']}")
        assert response.headers["Content-Type"] == "application/octet-stream"
        assert part["filename"] in response.headers["Content-Disposition"]
        assert len(response.content) == part["size"]
        assert hashlib.md5(response.content, usedforsecurity=False).hexdigest() == part["md5checksum"]
        return response.content
