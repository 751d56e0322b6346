"""The public surface, frozen: whoever changes it changes this list knowingly."""

import pytest

import rbnn


def test_public_names() -> None:
    assert sorted(rbnn.__all__) == [
        "BinaryConv1d",
        "BinaryConv2d",
        "BinaryLinear",
        "BinarySchedule",
        "RbnnError",
        "binarize_",
        "create_model",
        "export",
        "load",
        "penalty",
    ]


@pytest.mark.parametrize("name", rbnn.__all__)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    assert getattr(rbnn, name).__doc__
    assert name in dir(rbnn)


def test_old_paths_still_lead_there() -> None:
    import rbnn.packed.session
    import rbnn.runtime

    assert rbnn.runtime.Session is rbnn.packed.session.Session


def test_other_names_are_missing_as_usual() -> None:
    with pytest.raises(AttributeError, match="no attribute 'binarise_'"):
        _ = rbnn.binarise_
