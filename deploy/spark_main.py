"""treelabel as a program for spark-submit, which takes files that end in .py alone."""

from treelabel.cli import main

main()
