# Pads each line of a file of JSON lines with a text of so many bytes.

import sys

path, size = sys.argv[1:]
pad = f', "pad": "{"x" * int(size)}"}}\n'
with open(path) as file:
    lines = [line.rstrip("\n") for line in file]
with open(path, "w") as file:
    for line in lines:
        file.write(line[:-1] + pad)
