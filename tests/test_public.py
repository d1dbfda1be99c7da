"""The public face: what is promised exists, and nothing else is promised."""

import importlib
import subprocess
import sys

import pytest

import forerun


def test_every_public_name_exists_and_is_documented():
    for name in forerun.__all__:
        value = getattr(forerun, name)
        assert name == "__version__" or value.__doc__


def test_homes_and_all_agree():
    homes = {name for names in forerun._HOMES.values() for name in names}
    assert homes | {"__version__"} == set(forerun.__all__)
    assert dir(forerun) == forerun.__all__
    for home, names in forerun._HOMES.items():
        assert all(hasattr(importlib.import_module(home), name) for name in names)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="lod"):
        forerun.lod  # noqa: B018 - the access is the test


def test_importing_forerun_does_not_import_torch():
    code = "import sys, forerun, forerun.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_version_is_the_package_s():
    from importlib.metadata import version

    assert forerun.__version__ == version("forerun")
