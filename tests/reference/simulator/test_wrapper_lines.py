"""The recorder of lines is hidden from the code that it records."""

import sys

from gemmproof.reference.simulator.wrapper_lines import record_lines


def test_the_recorder_does_not_show_and_a_tracer_of_the_user_does():
    def own(frame, event, value):
        return None

    lines = {}
    before = sys.gettrace()
    with record_lines(lines):
        shown = [sys.gettrace()]
        sys.settrace(own)
        shown.append(sys.gettrace())
    assert shown == [None, own]
    assert sys.gettrace() is before


def test_lines_are_recorded():
    def called():
        return sys.gettrace()

    lines = {}
    with record_lines(lines):
        assert called() is None
    first = called.__code__.co_firstlineno
    assert lines == {called.__code__: {first + 1}}
