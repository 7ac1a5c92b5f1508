# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Prints the metrics of a run without what a clock measured.

import json
import sys

with open(f"{sys.argv[1]}/metrics.jsonl") as file:
    for line in file:
        entry = json.loads(line)
        for key in ("step_time", "tokens_per_s", "update_time"):
            entry.pop(key, None)
        print(json.dumps(entry))
