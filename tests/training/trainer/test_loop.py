"""How a loop is asked to stop."""

import os
import signal
import threading

from training.trainer.loop import StopSignal


def test_stop_signal_notes_the_first_and_restores_the_handlers() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignal() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.received is signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getsignal(signal.SIGTERM) is before


def test_stop_signal_works_outside_the_main_thread() -> None:
    noted: list[signal.Signals | None] = []

    def use() -> None:
        with StopSignal() as stop:
            noted.append(stop.received)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert noted == [None]
