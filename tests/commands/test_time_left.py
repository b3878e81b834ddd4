"""Progress: the completed part, and the time left if there is a basis for an estimate."""

from gemmproof.terminal import Course, format_seconds
from gemmproof.worker.protocol import (
    Advanced,
    CaseStarted,
    ModelCheckStarted,
    PartialReport,
    ProofEnded,
    ProofStarted,
    Ready,
    Started,
)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def follow(*options):
    """Return a stopped clock, and a command's progress measured by it."""
    clock = Clock()
    return clock, Course(*options, clock=clock)


def case(listen, clock, seconds, phase="draw", **more):
    listen(CaseStarted("{}", phase, **more))
    clock.now += seconds
    listen(PartialReport({}))


def test_cases_are_counted_and_the_time_left_follows_from_them():
    clock, course = follow("matmul")
    assert course.tell() == "matmul: loading"
    course(Ready())
    course(ProofStarted((), 10.0))
    assert course.tell() == "matmul: proving for every size (at most 10 s)"
    course(ProofEnded())
    course(Started(100))
    for done in range(1, 5):
        case(course, clock, 0.5)
        # the time of four cases says little about the others
        assert course.tell() == f"matmul: {done} of 100 cases"
    case(course, clock, 0.5)
    assert course.tell() == "matmul: 5 of 100 cases, about 50 s left"
    course(CaseStarted("{}", "draw"))
    clock.now += 20.0  # a case that takes longer: the time left decreases by as much
    assert course.tell() == "matmul: 5 of 100 cases, about 30 s left"
    course(PartialReport({}))
    assert course.tell() == "matmul: 6 of 100 cases, about 6 min left"


def test_quick_cases_are_no_basis_until_they_took_a_second():
    clock, course = follow("matmul")
    course(Started(1000))
    for _ in range(9):
        case(course, clock, 0.1)
    assert course.tell() == "matmul: 9 of 1000 cases"
    for _ in range(2):
        case(course, clock, 0.1)
    assert course.tell() == "matmul: 11 of 1000 cases, about 2 min left"


def test_nothing_is_said_of_the_time_that_nothing_tells():
    clock, course = follow("matmul")
    course(Started(20))
    for _ in range(12):
        case(course, clock, 1.0)
    for phase, more, text in (
        ("shrink", {}, "looking for the smallest case that fails"),
        ("limit", {"limit": ("int8", "")}, "beyond the contract: int8"),
        ("limit", {}, "narrower contracts"),
        ("launch", {}, "on the GPU: {}"),
    ):
        case(course, clock, 1.0, phase, **more)
        assert course.tell() == f"matmul: {text}"
    case(course, clock, 1.0)  # of the next format; the cases tried in between do not count
    assert course.tell().startswith("matmul: 13 of 20 cases, ")
    course(Ready())  # the worker died, and another one starts
    assert course.tell() == "matmul: loading"


def test_products_that_grow_are_measured_by_their_share():
    clock, course = follow("matmul")
    course(CaseStarted("product 1"))
    clock.now += 50.0  # probing, whose time says nothing about measuring
    for share in (0.0, 0.05, 0.2):
        course(CaseStarted("product 2", share=share))
        assert course.tell() == "matmul: product 2" + ", about 40 s left" * (share == 0.2)
        clock.now += 5.0
    assert course.tell() == "matmul: product 2, about 35 s left"


def test_of_several_workers_the_parts_are_counted():
    clock, course = follow("signoff", 4, "kernels")
    with course.follow("first") as listen:
        listen(Started(10))
        case(listen, clock, 6.0)
        assert course.tell() == "signoff: 0 of 4 kernels; 1 of 10 cases"
    assert course.tell() == "signoff: 1 of 4 kernels, about 20 s left"
    with course.follow("second") as second, course.follow("third") as third:
        for listen in (second, third):
            listen(Started(10))
        for _ in range(5):
            case(second, clock, 0.0)
        clock.now += 9.0
        text = "signoff: 1 of 4 kernels; 5 of 20 cases of 2 more, about 25 s left"
        assert course.tell() == text
    assert course.tell() == "signoff: 3 of 4 kernels, about 5 s left"


def compile_launch(listen, clock, index, of, seconds=5.0):
    listen(CaseStarted("f", "compile", index, of))
    clock.now += seconds


def test_launches_are_numbered_and_the_time_left_follows_from_them():
    clock, course = follow("matmul")
    course(Ready())
    clock.now += 30.0  # captures, whose time says nothing about compilations
    for index in (0, 1):
        compile_launch(course, clock, index, 10)
    assert course.tell() == "matmul: launch 2 of 10: f, about 40 s left"
    course(Ready())  # a worker that continues after one that died
    assert course.tell() == "matmul: loading"
    compile_launch(course, clock, 2, 10, 0.0)
    assert course.tell() == "matmul: launch 3 of 10: f, about 40 s left"


def test_targets_that_compile_side_by_side_have_a_time_left_before_one_ends():
    clock, course = follow("matmul", 2, "targets")
    with course.follow("sm_80") as on_sm_80, course.follow("sm_90") as on_sm_90:
        for index in range(3):
            compile_launch(on_sm_80, clock, index, 10)
            compile_launch(on_sm_90, clock, index, 10)
            assert ("left" in course.tell()) is (index > 0)
        text = "matmul: 0 of 2 targets; 4 of 20 launches of 2 more, about 2 min left"
        assert course.tell() == text


def judge_cases(listen, clock):
    listen(Started(2))
    for _ in range(2):
        case(listen, clock, 5.0)


def test_a_kernel_whose_predictions_are_compiled_is_neither_done_nor_estimated():
    clock, course = follow("signoff", 3, "kernels")
    with course.follow("first") as listen:
        judge_cases(listen, clock)
    assert course.tell() == "signoff: 1 of 3 kernels, about 20 s left"
    with course.follow("second") as listener:
        judge_cases(listener, clock)
        listener(ModelCheckStarted("f", 3, 8))
        text = "compiling predicted launches: launch 3 of 8, f"
        assert course.tell() == f"signoff: 1 of 3 kernels; {text}"
        with course.follow("third") as third:
            third(Started(10))
            text = "0 of 10 cases and 2 of 8 launches of 2 more"
            assert course.tell() == f"signoff: 1 of 3 kernels; {text}"
            listener(CaseStarted("{}", "limit", limit=("int8", "")))
            assert course.tell() == "signoff: 1 of 3 kernels; 2 of 12 cases of 2 more"
        assert course.tell() == "signoff: 2 of 3 kernels; beyond the contract: int8"
    assert course.tell() == "signoff: 3 of 3 kernels, about 1 s left"


def test_a_kernel_whose_promises_are_compiled_is_neither_done_nor_estimated():
    """A separate worker compiles them, once the cases are judged."""
    clock, course = follow("signoff", 3, "kernels")
    with course.follow("first") as listen:
        judge_cases(listen, clock)
    with course.follow("second") as listen:
        judge_cases(listen, clock)
        listen(Ready())
        assert course.tell() == "signoff: 1 of 3 kernels; loading"
        compile_launch(listen, clock, 0, 4)
        compile_launch(listen, clock, 1, 4)
        assert course.tell() == "signoff: 1 of 3 kernels; launch 2 of 4: f"
        listen(Ready())
        listen(Started(2))  # everything starts over
        assert course.tell() == "signoff: 1 of 3 kernels; loading, about 1 min left"


def test_assumptions_of_a_check_have_a_time_left():
    clock, course = follow("matmul")
    judge_cases(course, clock)
    for number in (1, 2):
        course(ModelCheckStarted("f", number, 5))
        clock.now += 4.0
    text = "compiling predicted launches: launch 2 of 5, f"
    assert course.tell() == f"matmul: {text}, about 15 s left"
    case(course, clock, 1.0, "limit", limit=["int8", ""])
    assert course.tell() == "matmul: beyond the contract: int8"


def test_times_are_those_that_a_person_would_say():
    texts = {0: "1 s", 0.2: "1 s", 8.1: "9 s", 12: "15 s", 51: "55 s", 61: "1 min", 400: "7 min"}
    assert {seconds: format_seconds(seconds) for seconds in texts} == texts


def test_a_long_activity_within_a_case_is_named():
    clock, course = follow("matmul")
    course(Started(100))
    case(course, clock, 0.5)
    course(CaseStarted("{}", "draw"))
    course(Advanced("evaluating the formula"))
    assert course.tell() == "matmul: 1 of 100 cases, evaluating the formula"
    course(Advanced())
    assert course.tell() == "matmul: 1 of 100 cases"


def test_names_cannot_move_the_cursor():
    assert Course("a\x1b[2Jb").tell() == r"a\x1b[2Jb: loading"
