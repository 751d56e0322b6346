"""Errors about unknown names."""

from rbnn.errors import MOST_LISTED, UnknownName


def test_a_short_list_is_printed_whole() -> None:
    assert str(UnknownName("colour", "gren", ["red", "green", "blue"])) == (
        "unknown colour 'gren': did you mean 'green'? available: blue, green, red"
    )
    assert str(UnknownName("colour", "12", ["red"])) == "unknown colour '12': available: red"


def test_of_a_long_list_the_nearest_few_are_named() -> None:
    known = [f"cifar10-network{number}-rbnn" for number in range(MOST_LISTED)] + ["digits"]
    said = str(UnknownName("recipe", "digit", known))
    assert said.startswith("unknown recipe 'digit': did you mean 'digits'? available: digits, ")
    assert said.endswith(f" and {len(known) - 4} others")
    assert said.count("cifar10") == 3


def test_a_name_out_of_a_file_is_quoted_in_part() -> None:
    said = str(UnknownName("method", "x" * 10**6, ["rbnn"]))
    assert said.startswith("unknown method 'xxx")
    assert len(said) < 300


def test_known_names_out_of_a_file_are_quoted_in_part() -> None:
    said = str(UnknownName("buffer", "nope", ["x" * 10**6, "y" * 10**6]))
    assert said.startswith("unknown buffer 'nope': available: xxx")
    assert len(said) < 500
