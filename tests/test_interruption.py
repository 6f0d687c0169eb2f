"""Ctrl-C between two steps."""

import signal
import threading

import pytest

from rove_lab.interruption import held_back


def handlers():
    return signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_the_second_raised(number):
    before = handlers()
    with held_back() as interruption:
        assert not interruption.asked
        signal.raise_signal(number)
        assert interruption.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert handlers() == before


def test_handlers_come_back_after_an_error():
    before = handlers()
    with pytest.raises(RuntimeError, match="inside"), held_back():
        raise RuntimeError("inside")
    assert handlers() == before


def test_a_thread_changes_nothing():
    before, seen = handlers(), []

    def work():
        with held_back() as interruption:
            seen.append((handlers() == before, interruption.asked))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(True, False)]
