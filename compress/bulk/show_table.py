"""`compress predict --file TABLE` without --to: the answers to its rows on the screen."""

from pathlib import Path

from compress.bulk.answer_part import answer_part, taken
from compress.bulk.bulk_command import BulkOptions, local_input
from compress.bulk.bulk_predictor import ERROR, BulkPredictor
from compress.bulk.read_table import TableFile, format_of
from compress.console import Console
from compress.errors import pluralize
from compress.runtime.predict_command import format_prediction


def show_table(folder: Path, name: str, options: BulkOptions, console: Console) -> None:
    """Show the answer to each row of a file on stdout: a line a row, in json with the row's columns of text."""
    predictor = BulkPredictor(
        folder,
        text=options.text,
        prefix=options.prefix,
        probabilities=options.probabilities,
        batch=options.batch,
        device=options.placement.device,
        threads=options.placement.threads,
    )
    error = [options.prefix + ERROR] if options.bad_rows == "keep" else []
    if used := [column for column in (*predictor.names, *error) if column in predictor.columns]:
        raise taken(name, used[0])
    bad = 0
    with local_input(name) as path:
        header = not all(map(str.isdecimal, predictor.columns))
        file = TableFile(path, format_of(name), options.encoding, header, name)
        file.check_columns(predictor.columns)
        for part in file.parts():
            done = answer_part(part, predictor, name, keep_bad=bool(error))
            bad += len(done.faults)
            for index, (row, answer) in enumerate(zip(done.cells, done.answers, strict=True)):
                shown = {options.prefix + field: answer[field] for field in predictor.fields}
                fault = dict.fromkeys(error, done.faults.get(index))
                if console.format == "json":
                    console.jsonl({**dict(zip(predictor.columns, row, strict=True)), **shown, **fault})
                else:
                    console.line(format_prediction({**shown, **fault} if index in done.faults else shown))
    if bad:
        console.warn(f"{name}: {pluralize(bad, 'row')} could not be read.")
