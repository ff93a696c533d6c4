"""
From an Excel file to accepted predictions
==========================================

Go from a messy Excel file to accepted predictions, and on to a taxonomy that changes.

Each step is one command; the numbers that it prints say whether to go on. This needs the extra excel.
"""

import contextlib
import csv
import os
import random
import tempfile
from pathlib import Path

from openpyxl import Workbook, load_workbook

import treelabel as tl
from treelabel.cli import main


def treelabel(*arguments: str) -> None:
    """Print a command, and run it."""
    print(f"\n$ treelabel {' '.join(arguments)}", flush=True)
    with contextlib.suppress(SystemExit):
        main(list(arguments))


def write_sheets() -> None:
    """Write tickets as offices export them, and others without categories."""
    sample = tl.load_sample()
    rows = [
        (text, "/".join(path[0].split(" > ")[:2]))
        for text, path in zip(sample.texts, sample.paths(), strict=True)
        if path[0].startswith(("animal", "food"))
    ]
    random.Random(0).shuffle(rows)
    book = Workbook()
    # A title above the table, names in capitals or with a space too many, texts that are missing.
    book.active.append(["Export of 3 May"])
    book.active.append([])
    book.active.append(["Ticket", "Description", "Category"])
    for number, (text, category) in enumerate(rows[:1000]):
        spelled = (
            category.upper() if number % 41 == 0 else category.replace("/", " /") if number % 43 == 0 else category
        )
        book.active.append([number, "" if number % 97 == 0 else text, spelled])
    # The same rows once more, and some of them with another category.
    for number, (text, category) in enumerate(rows[:30]):
        book.active.append([2000 + number, text, category if number < 20 else "food/other"])
    book.save("tickets.xlsx")
    later = Workbook()
    later.active.append(["Ticket", "Description"])
    for number, (text, _) in enumerate(rows[1000:1500]):
        later.active.append([5000 + number, text])
    later.save("new.xlsx")


def correct(queue: Path) -> None:
    """Do what a person does with the queue: confirm or correct its first rows."""
    with queue.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows[:3]:
        row["label"] = "ok"
    with queue.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


with tempfile.TemporaryDirectory() as folder:
    home = Path.cwd()
    os.chdir(folder)
    try:
        write_sheets()
        treelabel("inspect", "tickets.xlsx", "--fix", "clean.csv")
        treelabel("audit", "clean.csv", "-o", "suspects.csv", "--top", "20")
        treelabel("fit", "clean.csv", "-o", "model")
        treelabel("predict", "model", "new.xlsx", "-o", "predicted.xlsx", "--keep-columns", "--alternatives", "2")
        for row in list(load_workbook("predicted.xlsx").active.iter_rows(values_only=True))[:3]:
            print(row)
        treelabel("review", "model", "new.xlsx", "-o", "queue.csv", "--precision", "0.85")
        correct(Path("queue.csv"))
        treelabel("review", "--apply", "queue.csv", "-o", "more.csv", "--accepted")
        treelabel("update", "model", "more.csv", "-o", "model2", "--train", "clean.csv", "--compare", "new.xlsx")
        treelabel("drift", "model", "new.xlsx")
        # In spring, beverages are called drinks.
        known = tl.load_model("model").hierarchy_
        paths = [path.replace("food > beverage", "food > drinks") for path in known.paths()]
        Path("spring.csv").write_text("\n".join(["path", *paths]) + "\n", encoding="utf-8")
        Path("moves.tsv").write_text("food > beverage\tfood > drinks\n", encoding="utf-8")
        treelabel("update", "model", "-o", "model3", "--taxonomy", "spring.csv", "--moves", "moves.tsv")
        print(tl.load_model("model3").predict(["red wine of France"], paths=True))
        figure = tl.load_model("model3").hierarchy_.plot()
    finally:
        os.chdir(home)
