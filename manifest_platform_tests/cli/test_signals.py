"""How a command ends that is told to: its exit code, what it says, and that a second signal ends it at once."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from manifest_platform.cli import main
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.signals import Interrupted, ToldToEnd, ending_well, told_to_end

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture
def shell():
    """Restores SIGINT as in a foreground shell. Tests may run in the background, where SIGINT is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", CODES)
def test_the_first_signal_raises_with_its_exit_code_and_the_handlers_come_back(shell, number):
    before = signal.getsignal(number)
    with pytest.raises(ToldToEnd) as raised, told_to_end():
        os.kill(os.getpid(), number)
    assert (raised.value.code, raised.value.code) == (CODES[number], Exit(CODES[number]))
    assert signal.getsignal(number) is before


def test_what_was_noted_on_the_way_is_said(shell):
    with pytest.raises(Interrupted) as raised, ending_well(lambda: "the next drain continues with run=2"):
        error = ToldToEnd(signal.SIGTERM)
        error.add_note("2 directories were being shredded: put back, no attempt is counted")
        raise error
    assert str(raised.value) == (
        "interrupted; 2 directories were being shredded: put back, no attempt is counted; the leases are released, and the"
        " next drain continues with run=2"
    )
    assert raised.value.code is Exit.TERMINATED


def test_the_exit_code_is_the_signals_although_a_library_replaced_its_exception(shell):
    with pytest.raises(Interrupted) as raised, told_to_end(), ending_well("it continues"):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except ToldToEnd:
            raise KeyboardInterrupt from None
    assert raised.value.code is Exit.TERMINATED


def test_a_signal_that_is_ignored_stays_so(shell):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with told_to_end():
        os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_beside_the_main_thread_nothing_is_changed():
    found = []

    def look() -> None:
        with told_to_end():
            found.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [before]


HANGS = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from manifest_platform.cli.signals import told_to_end
with told_to_end():
    try:
        print("working", flush=True)
        time.sleep(60)
    finally:
        print("giving back", flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize("number", CODES)
def test_a_second_signal_ends_a_process_that_hangs_at_once(number):
    process = subprocess.Popen([sys.executable, "-c", HANGS], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout
    for said in ("working\n", "giving back\n"):
        assert process.stdout.readline() == said
        process.send_signal(number)
    assert process.wait(10) == -number


@pytest.mark.parametrize("number", CODES)
def test_a_command_that_only_looks_ends_with_the_signals_exit_code_too(monkeypatch, capsys, number):
    def told(*_arguments: object) -> None:
        raise ToldToEnd(number)

    monkeypatch.setattr("manifest_platform.config.load", told)
    assert main(["status", "--json"]) == CODES[number]
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["type"] == "Interrupted"
    assert "error: interrupted; finished work is kept" in captured.err
