"""Ray Data and Spark call a model as docs/bulk.md says."""

import shutil
from pathlib import Path

import pytest

import compress

TEXTS = ["a fine film", "", "the plot is dull", "so very good and great"] * 25


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """A folder of parquet files."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(2):
        rows = {"id": list(range(50 * number, 50 * number + 50)), "text": TEXTS[:50]}
        parquet.write_table(pyarrow.table(rows), folder / f"{number}.parquet")
    return folder


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_data_maps_batches_of_parquet(given: Path, model: Path, tmp_path: Path, monkeypatch) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed (the extra `ray`)")
    pytest.importorskip("ray.data", reason="Ray Data is not installed (the extra `ray`)")
    from pyarrow import parquet

    monkeypatch.setenv("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
    # Another test may have a cluster here at this time.
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        rows = ray.data.read_parquet(str(given))
        labelled = rows.map_batches(
            compress.BulkPredictor,
            fn_constructor_args=[str(model)],
            batch_size=32,
            compute=ray.data.ActorPoolStrategy(size=1),
        )
        labelled.write_parquet(str(tmp_path / "out"))
    finally:
        ray.shutdown()
    found = sorted(parquet.read_table(tmp_path / "out").to_pylist(), key=lambda row: row["id"])
    expected = compress.open(model).predict(TEXTS[:50] * 2)
    assert [row["label"] for row in found] == [row["label"] for row in expected]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_spark_predicts_batches(given: Path, model: Path) -> None:
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    if shutil.which("java") is None:
        pytest.skip("there is no JVM")
    from pyspark.ml.functions import predict_batch_udf
    from pyspark.sql.types import FloatType, StringType, StructType

    session = sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        answer = StructType().add("label", StringType()).add("probability", FloatType())
        label = predict_batch_udf(compress.spark_predictor(str(model)), return_type=answer, batch_size=32)
        rows = session.read.parquet(str(given)).withColumn("answer", label("text")).orderBy("id").collect()
    finally:
        session.stop()
    expected = compress.open(model).predict(TEXTS[:50] * 2)
    assert [row["answer"]["label"] for row in rows] == [row["label"] for row in expected]
