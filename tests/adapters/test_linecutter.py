"""However a stream is cut into chunks, its lines and their places are the same."""

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.adapters.linecutter import LineCutter


def cut(data: bytes, sizes: list[int]) -> list[tuple[int, bytes]]:
    cutter = LineCutter(100, 5, longest=20)
    for size in sizes:
        cutter.feed(data[:size])
        data = data[size:]
    cutter.feed(data)
    cutter.finish()
    return cutter.take(1000)


@given(
    lines=st.lists(st.integers(0, 60), max_size=12),
    sizes=st.lists(st.integers(0, 30), max_size=12),
    ended=st.booleans(),
)
@settings(max_examples=200)
def test_chunks_make_no_difference(lines: list[int], sizes: list[int], ended: bool) -> None:
    texts = [bytes([65 + index % 26]) * length for index, length in enumerate(lines)]
    data = b"\n".join(texts) + (b"\n" if ended and texts else b"")
    wanted = []
    start = 100
    for index, text in enumerate(texts):
        is_open = index == len(texts) - 1 and not ended
        if not (is_open and not text):
            wanted.append((start, text if len(text) <= 20 else text[:5]))
        start += len(text) + 1
    assert cut(data, sizes) == wanted


def test_the_next_start_is_that_of_the_first_line_not_taken() -> None:
    cutter = LineCutter(0, 5)
    cutter.feed(b"a\nbb\nc")
    assert cutter.next_start == 0
    assert cutter.take(1) == [(0, b"a")]
    assert cutter.next_start == 2
    assert cutter.take(5) == [(2, b"bb")]
    assert (cutter.next_start, cutter.is_half) == (5, True)
