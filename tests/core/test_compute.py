import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import pytest

from treelabel.core.compute import PRODUCT_ROWS, background, fast_kernel, in_threads, over_rows, row_product
from treelabel.core.types import FloatArray


@fast_kernel
def long_sum(one: FloatArray, two: FloatArray) -> np.float32:
    """Sum up in a loop that no compiler would copy into each of its callers unasked."""
    total = np.float32(0)
    for index in range(len(one)):
        total += one[index] * two[index]
    for index in range(len(one)):
        total += one[index] / two[index]
    for index in range(len(one)):
        total += np.exp(one[index] - two[index])
    for index in range(len(one)):
        total += np.sqrt(one[index] * two[index])
    return total


def four_sums(one: FloatArray, two: FloatArray) -> np.float32:
    return long_sum(one, two) + long_sum(two, one) + long_sum(one[1:], two[1:]) + long_sum(two, two)


def test_a_loop_that_may_round_otherwise_is_part_of_its_callers() -> None:
    ones = np.ones(4, np.float32)
    # Without a cache, as there is nothing to look at in what comes from one.
    compiled: Any = numba.njit(four_sums)
    assert compiled(ones, ones) == 4 * (4 + 4 + 4) + 3 * 4
    (code,) = compiled.inspect_llvm().values()
    assert re.search(r"define [^\n]*four_sums", code)
    assert not re.search(r"call [^\n]*long_sum", code)


def test_results_come_in_the_order_of_the_tasks() -> None:
    def work(task: int) -> int:
        time.sleep(0.001 * (5 - task))
        return task * task

    counted: list[int] = []
    assert in_threads(work, range(5), counted.append, threads=3) == [0, 1, 4, 9, 16]
    assert counted == [1, 2, 3, 4, 5]
    assert in_threads(work, []) == []


def test_tasks_within_tasks_run_in_the_thread_they_are_in() -> None:
    def names(_: int) -> set[str]:
        inner = in_threads(lambda task: threading.current_thread().name, range(3))
        rows = over_rows(lambda start, stop: threading.current_thread().name, 10_000, least=1)
        return {threading.current_thread().name, *inner, *rows}

    assert all(len(found) == 1 for found in in_threads(names, range(4), threads=2))


def test_an_error_begins_no_further_task_and_leaves_none_running() -> None:
    begun, ended, asked = [], [], []

    def work(task: int) -> None:
        begun.append(task)
        if task == 0:
            raise ValueError("no")
        time.sleep(0.01)
        ended.append(task)

    with pytest.raises(ValueError, match="no"):
        in_threads(work, range(50), interrupt=lambda: asked.append(1), threads=2)
    assert asked == [1]
    assert len(begun) < 50
    assert sorted(ended) == sorted(set(begun) - {0})


def test_the_first_ctrl_c_asks_for_haste_and_all_results_come_back() -> None:
    hurried = threading.Event()

    def done(number: int) -> None:
        if not hurried.is_set():
            raise KeyboardInterrupt

    assert in_threads(lambda task: task, range(6), done, hurried.set) == list(range(6))
    assert hurried.is_set()


def test_without_anyone_to_ask_the_first_ctrl_c_is_let_through() -> None:
    def done(number: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_threads(lambda task: task, range(6), done)


def test_items_are_made_one_ahead_in_another_thread() -> None:
    made = []

    def items() -> Iterator[int]:
        for number in range(3):
            made.append(threading.current_thread() is threading.main_thread())
            yield number

    assert list(background(items())) == [0, 1, 2]
    assert made == [False] * 3


def test_an_error_in_the_background_reaches_whoever_takes_the_item() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    found = background(items())
    assert next(found) == 1
    with pytest.raises(ValueError, match="no more"):
        next(found)


def test_products_of_rows_are_those_of_numpy_in_blocks() -> None:
    rng = np.random.default_rng(0)
    for rows in (0, 1, PRODUCT_ROWS, 2 * PRODUCT_ROWS + 3):
        left, right = rng.normal(size=(rows, 5)), rng.normal(size=(5, 3))
        assert row_product(left, right) == pytest.approx(left @ right)
        assert row_product(left, right).shape == (rows, 3)
