"""The memory's bandwidth: every size and number of threads is read, whole and once."""

import pytest

from forerun.native import ext

if ext.why_not():
    pytest.skip(f"no native runtime: {ext.why_not()}", allow_module_level=True)
module = ext.extension()


@pytest.mark.parametrize("nbytes", [0, 1, 1 << 20, (1 << 20) + 1, (17 << 20) + 4099, 48 << 20])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_251_any_size_is_read_by_any_number_of_threads(nbytes, threads):
    before = module.threads()
    module.set_threads(threads)
    try:
        assert 1e7 < module.probe(nbytes, 0.001) < 1e14
    finally:
        module.set_threads(before)
