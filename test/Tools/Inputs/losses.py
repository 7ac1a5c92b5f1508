# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Prints the metrics of a run without what a clock or the system measured.

import json
import sys



def is_measured(key):
    return key.endswith("_time") or key in ("tokens_per_s", "peak_memory")


def read(folder):
    """Yields each line as text."""
    with open(f"{folder}/metrics.jsonl") as file:
        for line in file:
            entry = json.loads(line)
            yield json.dumps({key: entry[key] for key in entry if not is_measured(key)})


if __name__ == "__main__":
    for line in read(sys.argv[1]):
        print(line)
