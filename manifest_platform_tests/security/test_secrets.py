"""No secret that the platform has read goes out in a text, however it is written there."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable, Iterator
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifest_platform import masking
from manifest_platform.masking import MASK, UnusableSecret, keep, masked, masked_within, secret

CANARY = 'cänary +/%41"\\&7Zq~€'
"""A secret that every encoding changes."""


@pytest.fixture(autouse=True)
def no_secrets() -> Iterator[None]:
    masking.forget()
    yield
    masking.forget()


def _lower(text: str) -> str:
    return "".join(each.lower() if text[max(0, at - 2) : at].count("%") else each for at, each in enumerate(text))


ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "percent": lambda text: quote(text, safe=""),
    "percent, lower case": lambda text: _lower(quote(text, safe="")),
    "percent, but for slashes": quote,
    "form": quote_plus,
    "form of several": lambda text: urlencode({"username": "u", "password": text}),
    "every byte": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "percent, twice": lambda text: quote(quote(text, safe=""), safe=""),
    "JSON": json.dumps,
    "JSON as it is": lambda text: json.dumps({"password": text}, ensure_ascii=False),
    "JSON of a form": lambda text: json.dumps({"body": urlencode({"password": text})}),
    "JSON of JSON": lambda text: json.dumps(json.dumps({"password": text})),
    "JSON with slashes": lambda text: json.dumps(text).replace("/", "\\/"),
    "repr": repr,
    "repr of bytes": lambda text: repr(b"Bearer " + text.encode()),
    "repr of an error": lambda text: repr(ValueError(f"Illegal header value {text!r}")),
    "ascii": ascii,
    "HTML": html.escape,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64, URL-safe": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "Basic": lambda text: "Basic " + base64.b64encode(f"user:{text}".encode()).decode(),
    "Basic of a longer user": lambda text: base64.b64encode(f"user1:{text}".encode()).decode(),
    "Basic of a yet longer user": lambda text: base64.b64encode(f"user12:{text}".encode()).decode(),
    "Basic of a form": lambda text: base64.b64encode(f"c:{quote(text, safe='')}".encode()).decode(),
    "base64 in JSON": lambda text: json.dumps(base64.b64encode(f"::{text}".encode()).decode()).replace("/", "\\/"),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("value", [CANARY, "plain-canary-123", "eyJhbGciOi.eyJzdWIi_-x.c2lnbmF0dXJl"])
def test_a_secret_is_masked_in_each_encoding(encoding: str, value: str) -> None:
    keep(value)
    written = ENCODINGS[encoding](value)
    said = masked(f"täxt before, {written} , täxt behind")
    assert said.startswith("täxt before, ") and said.endswith(" , täxt behind")
    assert MASK in said and ENCODINGS[encoding](value).strip("'\"") not in said
    middle = said.removeprefix("täxt before, ").removesuffix(" , täxt behind")
    assert "anary" not in middle and "7Zq" not in middle, middle


@given(
    st.text(min_size=masking.LONG).filter(lambda text: len(text.strip()) >= masking.LONG), st.sampled_from(sorted(ENCODINGS))
)
def test_any_long_secret_is_masked_in_each_encoding(value: str, encoding: str) -> None:
    masking.forget()
    keep(value)
    try:
        written = ENCODINGS[encoding](value.strip())
    except UnicodeEncodeError:
        return
    assert MASK in masked(f"<{written}>")


def test_a_text_without_secrets_stays_as_it_is() -> None:
    keep("canary-1234")
    for text in ("", "all is well", "100 %", "a\\b\\u00", "%zz&amp;", "aGVsbG8gd29ybGQ="):
        assert masked(text) == text


def test_every_secret_of_a_text_is_masked_and_the_text_between_stays() -> None:
    keep("canary-1234", "bluebird-99")
    assert masked("canary-1234, bluebird-99 and canary-1234") == f"{MASK}, {MASK} and {MASK}"
    assert masked("pä canary-1234 ö") == f"pä {MASK} ö"


def test_a_short_secret_is_masked_where_it_is_a_value_and_not_within_words() -> None:
    keep("a", "pg")
    assert masked("a page: apples") == "a page: apples"
    assert masked("password=pg&user=a") == f"password={MASK}&user={MASK}"
    assert masked("postgresql://u:pg@host/a") == f"postgresql://u:{MASK}@host/a"
    assert masked("{'password': 'pg'}") == f"{{'password': '{MASK}'}}"


def test_the_texts_of_a_document_are_masked_and_its_numbers_stay() -> None:
    keep("20240514")
    assert masked_within({"20240514": [20240514, "on 20240514", None, True]}) == {MASK: [20240514, f"on {MASK}", None, True]}


def test_a_secret_is_stripped_where_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_TOKEN", "canary-1234\n")
    assert secret("VAULT_TOKEN") == "canary-1234"
    assert masked("Illegal header value b'Bearer canary-1234\\n'") == f"Illegal header value b'Bearer {MASK}\\n'"


@pytest.mark.parametrize("value", ["", "  \n"])
def test_an_empty_secret_is_none(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("VAULT_TOKEN", value)
    assert secret("VAULT_TOKEN") is None
    assert masked("a text") == "a text"


@pytest.mark.parametrize("mark", ["\n", "\r", "\x7f", "\x1b", "\x85", "\u2028"])
def test_a_secret_with_a_control_character_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    monkeypatch.setenv("VAULT_TOKEN", f"canary{mark}1234")
    with pytest.raises(UnusableSecret) as refused:
        secret("VAULT_TOKEN")
    assert "VAULT_TOKEN" in str(refused.value)
    assert "canary" not in str(refused.value) and "1234" not in str(refused.value)


@pytest.mark.parametrize("variable", masking.READ_BY_LIBRARIES)
def test_what_libraries_read_by_themselves_is_masked(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "canary-1234")
    assert masked("it is canary-1234.") == f"it is {MASK}."


@pytest.mark.parametrize("mark", [" ", "ä", "\u00a0", "\u2019"])
def test_a_secret_that_no_header_can_have_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    """Such a secret was once treated as an outage: five attempts, and no message named the variable."""
    monkeypatch.setenv("VAULT_TOKEN", f"canary{mark}1234")
    assert secret("VAULT_TOKEN") == f"canary{mark}1234"
    with pytest.raises(UnusableSecret, match=r"VAULT_TOKEN: holds a character at place 7 of 11") as refused:
        secret("VAULT_TOKEN", in_header=True)
    assert "canary" not in str(refused.value) and "1234" not in str(refused.value)


@pytest.mark.parametrize("variable", masking.PROXIES)
def test_the_password_of_a_proxy_is_masked(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "http://user:canary%2D1234@proxy.example:3128")
    assert masked("it is canary-1234, canary%2D1234.") == f"it is {MASK}, {MASK}."


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://user:canary-1234@host:5432/manifest",
        "postgresql://user:canary%2D1234@host/manifest",
        "postgresql://host/manifest?user=u&password=canary-1234",
        "host=h password='canary-1234' user=u",
        "postgresql://user:can/ary@1234@host/manifest",
    ],
)
def test_the_password_of_a_database_url_is_masked(text: str) -> None:
    masking.keep_passwords_of(text)
    assert masked("cannot log in with canary-1234 or can/ary@1234").count(MASK) == 1


def test_a_process_that_lives_long_keeps_the_newest_secrets() -> None:
    keep(*(f"session-{number:06}" for number in range(masking.MOST + 1)))
    assert masked("session-000000") == "session-000000"
    assert masked(f"session-{masking.MOST:06}") == MASK


def test_masking_a_large_text_takes_time_in_proportion() -> None:
    keep("canary-1234")
    run = base64.b64encode(b"canary-1234" * 30_000).decode()
    assert masked(run) == MASK
    assert masked("%41\\u0041&lt;" * 10_000) == "%41\\u0041&lt;" * 10_000
