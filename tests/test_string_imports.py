"""The import-linter contract that counts ``module:function`` strings as imports."""

import pytest

grimp = pytest.importorskip("grimp")


def test_tables_of_functions_count_as_imports():
    from tests.string_imports import string_imports

    imported = {module for _, _, module in string_imports("compress.losses")}
    assert "compress.losses.distillation.soft_label" in imported


def test_a_string_that_points_upwards_breaks_the_contract(tmp_path, monkeypatch):
    from importlinter.contracts.layers import LayersContract

    from tests.string_imports import LayersWithStrings

    def broken(contract_class):
        contract = contract_class(
            name="layers",
            session_options={"root_packages": ["compress"]},
            contract_options={"layers": ["losses", "errors"], "containers": ["compress"]},
        )
        graph = grimp.ImportGraph()
        for module in ("compress", "compress.losses", "compress.losses.soft", "compress.errors"):
            graph.add_module(module)
        return not contract.check(graph, verbose=False).kept

    strings = {"compress.errors": [(1, "compress.losses.soft:soft", "compress.losses.soft")]}
    monkeypatch.setattr("tests.string_imports.string_imports", lambda module: strings.get(module, []))
    assert not broken(LayersContract)
    assert broken(LayersWithStrings)
