"""Labels next to lines, and SVG for a page."""

from itertools import pairwise

import pytest

from rbnn.report.drawing import RUNS, drawing, height, inline, name_lines


def heights_of(values: list[float]) -> dict[str, float]:
    """The positions of the labels of lines that end at these values (0 to 1)."""
    with drawing() as made:
        axes = made.subplots()
        axes.set_ylim(0, 1)
        name_lines(axes, [(value, str(number), "black", "-") for number, value in enumerate(values)])
        return {text.get_text(): text.get_position()[1] for text in axes.texts}


def test_names_stand_at_the_ends_of_their_lines() -> None:
    found = heights_of([0.8, 0.2])
    assert (found["0"], found["1"]) == (pytest.approx(0.8), pytest.approx(0.2))


def test_names_that_would_overlap_move_apart_and_keep_their_order() -> None:
    found = heights_of([1.0, 1.0, 1.0, 0.99, 0.1])
    ordered = sorted(found.values())
    assert all(above - below >= 0.08 for below, above in pairwise(ordered))
    assert max(ordered) <= 1.0
    assert min(found.values()) == found["4"] == pytest.approx(0.1)
    assert found["3"] < min(found["0"], found["1"], found["2"])


def test_a_piece_of_line_leads_from_each_end_to_its_name() -> None:
    with drawing() as made:
        axes = made.subplots()
        axes.set_ylim(0, 2)
        name_lines(axes, [(1.0, "a", "red", "-"), (1.0, "b", "blue", ":")])
        places = {text.get_text(): text.get_position()[1] for text in axes.texts}
        leads = {line.get_color(): list(line.get_ydata()) for line in axes.lines}
    assert leads["red"] == pytest.approx([0.5, places["a"]])
    assert leads["blue"] == pytest.approx([0.5, places["b"]])
    assert [line.get_linestyle() for line in axes.lines] == ["-", ":"]


def test_there_is_room_for_the_names_of_many_lines() -> None:
    assert height(3) == height(1)
    with drawing(4.8, height(30)) as made:
        axes = made.subplots()
        name_lines(axes, [(0.5, str(number), "black", "-") for number in range(30)])
    assert min(text.get_position()[1] for text in axes.texts) >= 0


def test_no_names() -> None:
    assert heights_of([]) == {}


def test_colours_become_the_page_s_variables() -> None:
    with drawing() as made:
        made.subplots().plot([0, 1], color=RUNS[1])
    text = inline(made, "key", 'a "label" <x>')
    assert text.startswith('<svg role="img" aria-label="a &quot;label&quot; &lt;x>"')
    assert "var(--run-1)" in text
    assert "var(--ink)" in text
    assert RUNS[1] not in text
    assert 'id="key-' in text
    assert "xmlns" not in text
    assert "http" not in text
