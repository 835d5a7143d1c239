"""Facts on the data, as sentences."""

from compress.report.tables.machine_facts import row_counts


def test_rows_with_contradictory_labels_are_counted(make_report):
    report = make_report()
    data = report.data.model_copy(update={"contradictory": {"train": 42, "select": 0, "test": 2}})
    text = row_counts(report.model_copy(update={"data": data}))
    assert text == "6,000 train, 300 select, 872 test; equal texts with different labels: 42 train, 2 test"
