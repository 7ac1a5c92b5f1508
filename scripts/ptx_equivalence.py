# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Proves of some changes of one instruction of a kernel in PTX that they change nothing.

Two facts about registers are computed, each the same at every place of the kernel: the bits that may
be set, from what is written to them, and the bits that matter, from what reads them. An instruction
may be changed if the bits of its result that matter stay the same, and deleted if no other one names the
register. Flow is looked at for two more: that a register has a constant already, so that setting it to
that once more does nothing, and that a copy has no bytes where its address changes.
"""

import re

FULL = (1 << 64) - 1
# Instructions of which a result depends on the operands alone.
PURE = {"mov", "cvt", "and", "or", "xor", "not", "shl", "shr", "add", "sub", "mul", "mad", "min", "max", "selp", "setp", "bfe", "popc"}


def below(bits):
    """A mask of the bits below number `bits`."""
    return (1 << max(bits, 0)) - 1


def zeros(mask):
    """How many of the lowest bits are not in `mask`."""
    return (mask & -mask).bit_length() - 1 if mask else 64


class Instruction:
    def __init__(self, text):
        guard, opcode, rest = re.match(r"(@!?\S+\s+)?([\w.:]+)(.*)", text.strip().rstrip(";")).groups()
        self.guard = guard and guard.strip("@! \t")
        self.parts = opcode.split(".")
        self.name = self.parts[0]
        # And all other words: registers of inline assembly have any name.
        self.registers = set(re.findall(r"[%\w.]+", text))
        self.operands = [word for word in re.split(r"[\s,{}\[\]|]+", rest) if word]
        types = [int(match[1]) for part in self.parts if (match := re.fullmatch(r"(?:[subf]|bf)(\d+)", part))]
        self.width = 1 if self.parts[-1] == "pred" else types[-1] if types else 64
        self.signed = any(re.fullmatch(r"s\d+", part) for part in self.parts[-1:])
        self.types = types
        # What memory, lanes or tensor cores give, floats, and what has more than one result, is not looked into.
        self.pure = (self.name in PURE and not re.search(r"[{\[|]", rest) and not {"sat", "cc"} & set(self.parts)
                     and not any(re.fullmatch(r"[a-z]*f\d+(x2)?", part) for part in self.parts))
        first = re.match(r"\s*\{([^}]*)\}|\s*([^,\s]+)", rest)
        names = re.split(r"[\s,|]+", (first[1] or first[2]).strip()) if first else []
        stores = self.name in ("st", "bra", "ret", "exit", "bar", "barrier", "cp", "red", "membar", "fence", "prefetch", "mbarrier", "stmatrix", "call", "wgmma")
        self.results = [] if stores and self.name != "wgmma" else [name for name in names if not re.match(r"-?\d", name)]
        self.sources = self.operands if self.name == "wgmma" else self.operands[len(self.results):]

    def result_width(self):
        if self.name == "cvt":
            return self.types[0]
        return 1 if self.name == "setp" else self.width * (2 if "wide" in self.parts else 1)


class Kernel:
    """The instructions of a text by their lines; `multiples` says of parameters what divides them."""

    def __init__(self, lines, multiples):
        self.multiples = multiples
        self.code, self.labels, inside, begun = {}, {}, False, None
        for number, line in enumerate(lines):
            text = re.sub(r"//.*", "", line).strip()
            inside |= text == "{"
            if label := re.match(r"(\$\w+):$", text):
                self.labels[label[1]] = number
            elif inside and text and text not in "{}" and not text.startswith("."):
                # An instruction may go on in the next lines.
                first, words = begun or (number, "")
                begun = (first, f"{words} {text}")
                if text.endswith(";"):
                    self.code[first], begun = Instruction(begun[1]), None
        text = "\n".join(lines)
        block = re.search(r"\.(?:max|req)ntid (\d+), 1, 1", text)
        self.threads = int(block[1]) if block else 1024
        self.aligned = {name: int(size) for size, name in re.findall(r"\.align (\d+) \.\w+ (\w+)\[", text)}
        self.written = {}
        for instruction in self.code.values():
            for name in instruction.results:
                self.written.setdefault(name, []).append(instruction)
        self.set_bits = self.fix(lambda: {name: 0 for name in self.written}, self.find_set)
        self.demand = {}
        self.find_demand()
        self.constants = None

    # Bits that may be set.

    def may(self, word):
        """The bits that may be set in an operand."""
        if re.fullmatch(r"-?\d+", word):
            return int(word) & FULL
        if match := re.fullmatch(r"0[fd]([0-9A-Fa-f]+)", word):
            return int(match[1], 16)
        if word == "%tid.x":
            return below((self.threads - 1).bit_length())
        if word == "%laneid":
            return below(5)
        if word in self.aligned:
            return FULL & ~(self.aligned[word] - 1)
        return self.set_bits.get(word, FULL)

    def fix(self, start, step):
        values = start()
        self.set_bits = values
        changed = True
        while changed:
            changed = False
            for name, writers in self.written.items():
                bits = values[name]
                for writer in writers:
                    bits |= step(writer)
                changed |= bits != values[name]
                values[name] = bits
        return values

    def find_set(self, it):
        """The bits that instruction `it` may set in its result."""
        if it.name == "ld" and "param" in it.parts:
            return below(it.width) & ~(self.multiples.get(it.sources[0].split("+")[0], 1) - 1)
        if not it.pure or len(it.results) != 1:
            return below(it.width if it.name == "ld" and not it.signed else 64)
        width = below(it.result_width())
        x, *more = [self.may(word) & below(it.types[-1] if it.name == "cvt" and it.types else it.width) for word in it.sources]
        y = more[0] if more else 0
        negative = it.signed and x >> (it.width - 1) & 1
        count = int(it.sources[1]) if len(it.sources) > 1 and it.sources[1].isdigit() else None
        if it.name == "mov":
            return x & width
        if it.name == "cvt":
            source = it.types[-1]
            grows = re.fullmatch(r"s\d+", it.parts[-1]) and it.types[0] > source and x >> (source - 1) & 1
            return (x | (FULL & ~below(source) if grows else 0)) & width
        if it.name == "and":
            return x & y
        if it.name in ("or", "xor"):
            return x | y
        if it.name == "shl" and count is not None:
            return x << count & width
        if it.name == "shr" and count is not None and not negative:
            return x >> count
        if it.name == "bfe" and count is not None and not it.signed and it.sources[2].isdigit():
            return x >> count & below(int(it.sources[2]))
        if it.name == "popc":
            return below(it.width.bit_length())
        if it.name == "setp":
            return 1
        if it.name == "selp":
            return x | y
        if it.name == "add":
            return self.add(x, y, width)
        if it.name == "sub":
            return width & ~below(min(zeros(x), zeros(y)))
        if it.name in ("mul", "mad") and "hi" not in it.parts:
            low = zeros(x) + zeros(y)
            if it.signed and "wide" in it.parts and (negative or y >> (it.width - 1) & 1):
                product = width & ~below(low)
            else:
                product = below(x.bit_length() + y.bit_length()) & ~below(low) & width
            return product if it.name == "mul" else self.add(product, self.may(it.sources[2]) & width, width)
        if it.name in ("min", "max") and not (it.signed and (x | y) >> (it.width - 1) & 1):
            return below(max(x.bit_length(), y.bit_length())) & ~below(min(zeros(x), zeros(y)))
        return width

    @staticmethod
    def add(x, y, width):
        if not x & y:
            return x | y
        return below(max(x.bit_length(), y.bit_length()) + 1) & ~below(min(zeros(x), zeros(y))) & width

    # Bits that matter.

    def find_demand(self):
        changed = True
        while changed:
            changed = False
            for it in self.code.values():
                wanted = [(it.guard, 1)] if it.guard else []
                wanted += zip(it.sources, self.demands(it))
                for word, bits in wanted:
                    word = word.lstrip("!").split("+")[0]
                    before = self.demand.get(word, 0)
                    self.demand[word] = before | bits
                    changed |= self.demand[word] != before

    def demands(self, it):
        """The bits of each source of `it` that matter for the bits of its result that do."""
        everything = [FULL] * len(it.sources)
        if not it.pure or len(it.results) != 1:
            return everything
        wanted = self.demand.get(it.results[0], 0)
        if not wanted and it.name != "setp":
            return [0] * len(it.sources)
        count = int(it.sources[1]) if len(it.sources) > 1 and it.sources[1].isdigit() else None
        others = [self.may(word) for word in reversed(it.sources[:2])]
        carried = below(wanted.bit_length())
        if it.name in ("mov", "or", "xor", "not"):
            return [wanted] * len(it.sources)
        if it.name == "cvt":
            source = it.types[-1]
            return [wanted & below(source) | (1 << (source - 1) if wanted >> source and re.fullmatch(r"s\d+", it.parts[-1]) else 0)]
        if it.name == "and":
            return [wanted & other for other in others]
        if it.name == "selp":
            return [wanted, wanted, 1]
        if it.name == "shl" and count is not None:
            return [wanted >> count, FULL]
        if it.name == "shr" and count is not None and not it.signed:
            return [wanted << count & below(it.width), FULL]
        if it.name == "bfe" and count is not None and it.sources[2].isdigit() and not it.signed:
            return [(wanted & below(int(it.sources[2]))) << count, FULL, FULL]
        if it.name == "add":
            # Where the other one has zeros, nothing is carried.
            return [carried & ~below(zeros(other)) | wanted & below(zeros(other)) for other in others]
        if it.name == "sub":
            return [carried] * 2
        if it.name == "mul" and "hi" not in it.parts:
            signs = 1 << (it.width - 1) if it.signed and "wide" in it.parts and wanted >> it.width else 0
            return [below(wanted.bit_length() - min(zeros(other), 64)) & below(it.width) | signs for other in others]
        if it.name == "setp" and len(it.sources) == 2 and it.parts[1] in ("ge", "lt"):
            # x >= y if and only if x / 2^k >= y / 2^k, rounded down, for a y that 2^k divides.
            return [FULL & ~below(zeros(self.may(it.sources[1]) & below(it.width))), FULL]
        return everything

    # Constants, by flow.

    def find_constants(self):
        """What registers hold in front of each instruction, if that is a constant however it is reached."""
        numbers = sorted(self.code)
        follows = dict(zip(numbers, numbers[1:]))
        place = lambda line: next((n for n in numbers if n >= line), None)  # noqa: E731
        before, work = {numbers[0]: {}}, [numbers[0]]
        while work:
            number = work.pop()
            it, state = self.code[number], dict(before[number])
            for name in it.results:
                value = None
                if it.name == "mov" and len(it.results) == len(it.sources) == 1 and not it.guard:
                    value = state.get(it.sources[0], it.sources[0] if re.match(r"-?\d", it.sources[0]) else None)
                state.pop(name, None)
                if value is not None:
                    state[name] = value
            successors = []
            if it.name == "bra":
                successors.append(place(self.labels[it.operands[0]]))
            if not (it.name in ("bra", "ret", "exit") and not it.guard):
                successors.append(follows.get(number))
            for successor in filter(lambda n: n is not None, successors):
                known = before.get(successor)
                joined = state if known is None else {name: value for name, value in known.items() if state.get(name) == value}
                if joined != known:
                    before[successor] = dict(joined)
                    work.append(successor)
        return before

    # Mutants.

    def reason(self, number, new):
        """Why `new` in place of instruction `number` is the same program, or None."""
        old = self.code.get(number)
        if old is None:
            return None
        if not new.strip():
            return self.reason_to_delete(number, old)
        it = Instruction(new)
        barriers = [other for other in self.code.values() if other.name in ("bar", "barrier")]
        if old.name == "bar" and it.parts == old.parts and len(barriers) == 1 and len(it.operands) == len(old.operands) == 1:
            return "the number of the only barrier"
        if old.name == it.name == "setp" and old.results == it.results and old.guard == it.guard and self.compares_same(old, it):
            return "a number that is never met"
        if not (old.pure and it.pure) or it.name != old.name or it.parts[1:] != old.parts[1:] or it.results != old.results or it.guard != old.guard:
            return None
        changed = [i for i, (a, b) in enumerate(zip(old.sources, it.sources)) if a != b]
        if len(changed) != 1 or len(it.sources) != len(old.sources) or not all(re.fullmatch(r"-?\d+", w.sources[changed[0]]) for w in (old, it)):
            return None
        if old.name == "selp" and changed[0] == 1 and self.copies_nothing(number, old):
            return "a copy of no bytes begins elsewhere"
        matter = self.demand.get(old.results[0], 0) & below(old.result_width())
        a, b = (int(w.sources[changed[0]]) & below(old.width) for w in (old, it))
        other = self.may(old.sources[1 if changed[0] == 0 and len(old.sources) > 1 else 0]) & below(old.width)
        same = False
        if old.name != "setp" and not matter:
            same = True
        elif old.name == "and":
            same = not (a ^ b) & other & matter
        elif old.name in ("or", "xor", "mov", "selp") and not (old.name == "selp" and changed[0] == 2):
            same = not (a ^ b) & matter
        elif old.name == "add":
            low = zeros(matter)
            same = not other & below(low) and a >> low == b >> low
        elif old.name == "bfe" and changed[0] == 2 and not old.signed and old.sources[1].isdigit():
            same = not other >> int(old.sources[1]) & (below(a) ^ below(b)) & matter
        elif old.name == "setp" and old.parts[1] in ("eq", "ne") and len(old.sources) == 2:
            same = bool(a & ~other) and bool(b & ~other)
        return "the bits that differ are never set or do not matter" if same else None

    def is_never(self, word, number):
        """Whether an operand never has the value `number`: it would need a bit that is never set, or lack one that an `or` sets."""
        always = FULL if word in self.written else 0
        for it in self.written.get(word, []):
            literal = it.sources[1] if it.name == "or" and not it.guard and len(it.sources) == 2 else "0"
            always &= int(literal) if literal.isdigit() else 0
        return bool(number & ~self.may(word) | always & ~number)

    def compares_same(self, old, it):
        """Whether two comparisons of an operand with numbers differ at one value alone, which it never has."""
        if len(old.sources) != 2 or not old.sources[1].isdigit() or old.sources[0] != it.sources[0] or old.parts[2:] != it.parts[2:]:
            return False
        first, second = old.parts[1], it.parts[1]
        number = int(old.sources[1])
        if {first, second} in ({"gt", "ge"}, {"lt", "le"}) and it.sources[1] == old.sources[1]:
            return self.is_never(old.sources[0], number)
        if first == second and it.sources[1] == str(number + 1) and first in ("gt", "ge", "lt", "le"):
            return self.is_never(old.sources[0], number + (first in ("gt", "le")))
        return False

    def copies_nothing(self, number, old):
        """Whether what `old` selects where its predicate is false is an address of copies alone, of which the same
        predicate selects 0 bytes: in instructions that follow each other, each behind those that it reads."""
        ends = [n for n, it in self.code.items() if it.name in ("bra", "ret", "exit")] + list(self.labels.values())
        first = max((n for n in ends if n < number), default=-1)
        last = min((n for n in ends if n > number), default=max(self.code) + 1)
        predicate = old.sources[2]

        def find_writer(name, end):
            """The only instruction that writes `name`, if it always does, in front of number `end`."""
            writers = [n for n, it in self.code.items() if name in it.results]
            return writers[0] if len(writers) == 1 and first < writers[0] < end and not self.code[writers[0]].guard else None

        def is_address(name, written):
            for n, it in self.code.items():
                if name not in {it.guard, *(word.lstrip("!").split("+")[0] for word in it.sources)}:
                    continue
                if not written < n < last or it.guard:
                    return False
                if it.parts[:2] == ["cp", "async"] and len(it.sources) == 4:
                    to, _, _, size = (word.split("+")[0] for word in it.sources)
                    chosen = find_writer(size, n)
                    if name in (to, size) or chosen is None or self.code[chosen].name != "selp":
                        return False
                    if self.code[chosen].sources[1:] != ["0", predicate] or find_writer(predicate, chosen) is None:
                        return False
                elif not it.pure or len(it.results) != 1 or find_writer(it.results[0], last) != n or not is_address(it.results[0], n):
                    return False
            return True

        return find_writer(predicate, number) is not None and find_writer(old.results[0], last) == number and is_address(old.results[0], number)

    def reason_to_delete(self, number, old):
        if not old.pure or len(old.results) != 1:
            return None
        if not any(old.results[0] in other.registers for at, other in self.code.items() if at != number):
            return "no instruction reads the register"
        if self.constants is None:
            self.constants = self.find_constants()
        state = self.constants.get(number)
        if state is None:
            return "it is never reached"
        if old.name == "mov" and len(old.sources) == 1:
            value = state.get(old.sources[0], old.sources[0])
            if re.match(r"-?\d", value) and state.get(old.results[0]) == value:
                return "the register has that value already"
        return None
