# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Opens a file in a language server, and prints what it says of it.

    ask-lsp-server.py <server> <file>
"""

import json
import pathlib
import subprocess
import sys

server, path = sys.argv[1], pathlib.Path(sys.argv[2])
text = path.read_text()
process = subprocess.Popen([server], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL)


def send(method, parameters, number=None):
    message = {"jsonrpc": "2.0", "method": method, "params": parameters}
    if number is not None:
        message["id"] = number
    body = json.dumps(message).encode()
    process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    process.stdin.flush()


def receive(wanted):
    """Returns the first message that `wanted` is true of."""
    while True:
        length = 0
        while line := process.stdout.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        if not length:
            sys.exit("expected an answer of the server, but got the end of its output")
        message = json.loads(process.stdout.read(length))
        if wanted(message):
            return message


send("initialize", {"processId": None, "rootUri": None, "capabilities": {}}, 1)
receive(lambda message: message.get("id") == 1)
document = {"uri": "file:///step.mlir", "languageId": "mlir", "version": 1, "text": text}
send("textDocument/didOpen", {"textDocument": document})
found = receive(lambda message: message.get("method") == "textDocument/publishDiagnostics")
diagnostics = found["params"]["diagnostics"]
print("diagnostics:", len(diagnostics))
for diagnostic in diagnostics:
    print(diagnostic["message"])
if not diagnostics:
    line = next(i for i, line in enumerate(text.splitlines()) if "bsr.spmm" in line)
    position = {"line": line, "character": text.splitlines()[line].index("bsr.spmm") + 1}
    send("textDocument/hover", {"textDocument": {"uri": document["uri"]}, "position": position}, 2)
    answer = receive(lambda message: message.get("id") == 2)["result"]
    print("hover:", answer["contents"]["value"].replace("\n", " "))
send("shutdown", None, 3)
receive(lambda message: message.get("id") == 3)
send("exit", None)
sys.exit(process.wait())
