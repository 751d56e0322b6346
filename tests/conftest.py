"""What every test starts from."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

# A loaded machine is slow now and then: that is no failure.
settings.register_profile("rbnn", deadline=None, print_blob=True)
settings.load_profile("rbnn")


@pytest.fixture(autouse=True)
def same_start() -> Iterator[None]:
    """One thread, since the tensors are small, and the same random numbers whatever ran before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
