# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Prints the metrics of a run without what a clock measured.

import json
import sys

CLOCK = ("step_time", "tokens_per_s", "update_time")


def read(folder):
    """Yields each line as text."""
    with open(f"{folder}/metrics.jsonl") as file:
        for line in file:
            entry = json.loads(line)
            yield json.dumps({key: entry[key] for key in entry if key not in CLOCK})


if __name__ == "__main__":
    for line in read(sys.argv[1]):
        print(line)
