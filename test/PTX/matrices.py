# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks which element of a matrix each lane has, by a second reading of the manual.

    matrices.py mma | ldmatrix | stmatrix | wgmma | tensor | boxes

Elements are small whole numbers, so that every sum is exact. The formulas:
- mma: PTX ISA, "Matrix Fragments for mma.m16n8k16" and ".m16n8k8", element by
  element (a_i, b_i, c_i of a lane), as tinygrad's emulator reads it as well.
- ldmatrix, stmatrix: PTX ISA, "ldmatrix": lane i has row i / 4, columns
  2 (i % 4) and the next.
- wgmma: the layouts of CUTLASS's mma_traits_sm90_gmma.hpp, evaluated as shapes and
  strides, with its swizzle functor; D as PTX ISA, "Register Fragments for
  wgmma.mma_async.m64nNk16".
- tensor: CUDA programming guide, the tables of the swizzle patterns: 16-byte pieces
  of a row are permuted by the number of the row.
"""

import itertools
import subprocess
import sys

import numpy as np

HEADER = """.version 8.3
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry kernel(%s)
{
.reg .b32 %%lane; .reg .b64 %%p; .reg .b64 %%q; .reg .b64 %%o; .reg .b32 %%s;
mov.u32 %%lane, %%tid.x;
mul.wide.u32 %%o, %%lane, 4;
"""
checked = 0


def run(name, body, arguments, shared=0, block=32, parameters=None):
    """Runs PTX; returns the words of the last argument."""
    parameters = parameters or ", ".join(f".param .u64 p{i}" for i in range(len(arguments)))
    with open(f"{name}.ptx", "w") as file:
        file.write(HEADER % parameters + body + "ret;\n}\n")
    command = ["ptx-run", f"{name}.ptx", "--grid", "1", "--block", str(block), "--shared", str(shared)]
    done = subprocess.run(command + [word for argument in arguments for word in ("--arg", argument)],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{name}: {done.stderr}")
    return [word for word in done.stdout.split(":", 1)[1].split()]


def expect(name, found, wanted):
    global checked
    checked += 1
    if not np.array_equal(np.asarray(found), np.asarray(wanted)):
        sys.exit(f"{name}: expected {wanted}, but got {found}")


def bits(kind, matrix):
    """The bits of a matrix of small whole numbers."""
    if kind == "f16":
        return matrix.astype(np.float16).view(np.uint16)
    words = matrix.astype(np.float32).view(np.uint32)
    return (words >> 16).astype(np.uint16) if kind == "bf16" else words


def argument(words):
    return "in:u32:" + ",".join(map(str, np.asarray(words, np.uint32).ravel()))


def load(count, names, first=0):
    """Loads `count` registers of each lane from the buffer in %p."""
    return "".join(f"ld.global.b32 %{names}{i}, [%p+{4 * 32 * (first + i)}];\n" for i in range(count))


# PTX ISA: element i of a lane; groupID = lane / 4, threadID_in_group = lane % 4.
def mma_a16(lane, i):
    return lane // 4 + (8 if i in (2, 3, 6, 7) else 0), lane % 4 * 2 + (i & 1) + (8 if i >= 4 else 0)


def mma_b16(lane, i):
    return lane % 4 * 2 + (i & 1) + (8 if i >= 2 else 0), lane // 4


def mma_c(lane, i):
    return lane // 4 + (8 if i >= 2 else 0), lane % 4 * 2 + (i & 1)


def mma_a32(lane, i):
    return lane // 4 + (8 if i in (1, 3) else 0), lane % 4 + (4 if i >= 2 else 0)


def mma_b32(lane, i):
    return lane % 4 + (4 if i == 1 else 0), lane // 4


def pack(words, place, count, per):
    """Registers of 32 lanes from a matrix of bits."""
    registers = np.zeros((count, 32), np.uint32)
    for lane, i in itertools.product(range(32), range(count * per)):
        registers[i // per, lane] |= int(words[place(lane, i)]) << (16 * (i % per) if per == 2 else 0)
    return registers


def check_mma():
    rng = np.random.default_rng(1)
    for kind, depth in [("bf16", 16), ("f16", 16), ("bf16", 8), ("f16", 8), ("tf32", 8)]:
        a, b, c = rng.integers(-8, 9, (16, depth)), rng.integers(-8, 9, (depth, 8)), rng.integers(-99, 99, (16, 8))
        narrow = kind != "tf32"
        counts = (depth // 4, depth // 8) if narrow else (4, 2)
        per = 2 if narrow else 1
        registers = np.concatenate([
            pack(bits(kind, a), mma_a16 if narrow else mma_a32, counts[0], per),
            pack(bits(kind, b), mma_b16 if narrow else mma_b32, counts[1], per), pack(bits("f32", c), mma_c, 4, 1)])
        total = len(registers)
        names = [f"%r{i}" for i in range(total)]
        lists = [names[total - 4:], names[:counts[0]], names[counts[0]:total - 4], names[total - 4:]]
        body = (f".reg .b32 %r<{total}>;\nld.param.u64 %p, [p0];\nadd.s64 %p, %p, %o;\nld.param.u64 %q, [p1];\n"
                "add.s64 %q, %q, %o;\n" + load(total, "r") +
                f"mma.sync.aligned.m16n8k{depth}.row.col.f32.{kind}.{kind}.f32 " +
                ", ".join("{" + ", ".join(names) + "}" for names in lists) + ";\n" +
                "".join(f"st.global.b32 [%q+{128 * i}], {lists[0][i]};\n" for i in range(4)))
        found = np.array(run("mma", body, [argument(registers), "out:f32:128"]), float).reshape(4, 32)
        wanted = np.zeros((4, 32))
        for lane, i in itertools.product(range(32), range(4)):
            wanted[i, lane] = (a @ b + c)[mma_c(lane, i)]
        expect(f"mma {kind} k{depth}", found, wanted)


def check_ldmatrix(stores):
    rng = np.random.default_rng(2)
    for count, transposed in itertools.product((1, 2, 4), (False, True)):
        words = rng.integers(0, 65536, (count, 8, 8)).astype(np.uint16)
        held = np.zeros((count, 32), np.uint32)
        for i, lane in itertools.product(range(count), range(32)):
            matrix = words[i].T if transposed else words[i]
            pair = matrix[lane // 4, 2 * (lane % 4):2 * (lane % 4) + 2]
            held[i, lane] = int(pair[0]) | int(pair[1]) << 16
        names = "{" + ", ".join(f"%r{i}" for i in range(count)) + "}"
        trans = ".trans" if transposed else ""
        rows = words.reshape(-1, 8).copy().view(np.uint32)  # [row][4 words]
        body = (".reg .b32 %r<4>; .reg .b32 %m<4>; .reg .pred %in;\nld.param.u64 %p, [p0];\nadd.s64 %p, %p, %o;\nld.param.u64 %q, [p1];\n"
                "add.s64 %q, %q, %o;\nmov.u32 %s, dynamic;\nmad.lo.u32 %s, %lane, 16, %s;\n"
                f"setp.lt.u32 %in, %lane, {8 * count};\n")
        if stores:
            body += load(count, "r")
            body += f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%s], {names};\nbar.warp.sync 0xffffffff;\n"
            body += "".join(f"@%in ld.shared.b32 %m{i}, [%s+{4 * i}];\n@%in st.global.b32 [%q+{128 * i}], %m{i};\n"
                            for i in range(4))
            found = run("stmatrix", body, [argument(held), "zero:u32:128"], 512)
            wanted = np.zeros((4, 32), np.uint32)
            wanted[:, :8 * count] = rows.T
        else:
            by_word = np.zeros((4, 32), np.uint32)
            by_word[:, :8 * count] = rows.T
            body += "".join(f"ld.global.b32 %m{i}, [%p+{128 * i}];\nst.shared.b32 [%s+{4 * i}], %m{i};\n" for i in range(4))
            body += f"bar.warp.sync 0xffffffff;\nldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {names}, [%s];\n"
            body += "".join(f"st.global.b32 [%q+{128 * i}], %r{i};\n" for i in range(count))
            found = run("ldmatrix", body, [argument(by_word), f"out:u32:{32 * count}"], 512)
            wanted = held
        expect(f"matrix x{count}{trans}", np.array(found, np.uint32).reshape(wanted.shape), wanted)


# CUTLASS: Swizzle<B, 4, 3> of a byte address, and layouts as shapes and strides.
def swizzle(bits, address):
    return address ^ ((address & ((1 << bits) - 1) << 7) >> 3)


def index(shape, stride, coordinate):
    """CuTe's crd2idx of one mode with several extents: the first is the fastest."""
    offset = 0
    for extent, step in zip(shape[:-1], stride[:-1]):
        offset += coordinate % extent * step
        coordinate //= extent
    return offset + coordinate * stride[-1]


def canonical(mode, major_k, size, lbo, sbo):
    """The byte of element (mn, k), without swizzle; units of T elements are 16 bytes."""
    t = 16 // size
    w = 1 << mode  # 16-byte pieces of a row
    if major_k:
        layouts = [((8, 0), (w * 16, sbo)), ((t, 0), (size, 16 if mode else lbo))]
    elif mode:
        layouts = [((t, w, 0), (size, 16, lbo)), ((8, 0), (w * 16, sbo))]
    else:
        layouts = [((t, 0), (size, sbo)), ((8, 0), (16, lbo))]
    return lambda mn, k: index(*layouts[0], mn) + index(*layouts[1], k)


def check_wgmma():
    rng = np.random.default_rng(3)
    for kind, mode, major_a, major_b, columns in [
            *((kind, mode, True, True, 32) for kind in ("bf16", "f16", "tf32") for mode in range(4)),
            *(("bf16", mode, False, False, 128) for mode in range(4)), ("f16", 3, True, False, 256),
            ("bf16", 3, False, True, 8), ("bf16", 1, True, False, 64), ("tf32", 3, True, True, 256)]:
        size, depth = (4, 8) if kind == "tf32" else (2, 16)
        a, b = rng.integers(-8, 9, (64, depth)), rng.integers(-8, 9, (columns, depth))
        image, descriptors, begin = np.zeros(48 * 1024, np.uint8), [], 0
        for matrix, major_k in ((a, major_a), (b, major_b)):
            rows = len(matrix)
            row = 16 << mode
            span = row // size
            if major_k:  # groups of 8 rows follow each other; 16-byte columns behind all of them
                sbo, lbo = 8 * row, max(rows // 8, 1) * 8 * row
                extent = (2 if mode == 0 else 1) * lbo
            elif mode:
                lbo, sbo = 16 * row, 8 * row
                extent = -(-rows // span) * lbo
            else:
                sbo, lbo = 256, 128
                extent = rows // 8 * sbo
            place = canonical(mode, major_k, size, lbo, sbo)
            words = bits(kind, matrix)
            for mn, k in itertools.product(range(rows), range(depth)):
                at = swizzle(mode, 1024 + begin + place(mn, k)) - 1024
                image[at:at + size] = np.array([words[mn, k]]).view(np.uint8)
            layout = (0, 3, 2, 1)[mode]
            descriptors.append((1024 + begin) >> 4 | (lbo >> 4) << 16 | (sbo >> 4) << 32 | layout << 62)
            begin += -(-extent // 1024) * 1024
        words = begin // 4
        names = ", ".join(f"%d{i}" for i in range(columns // 2))
        modes = f", {int(not major_a)}, {int(not major_b)}" if size == 2 else ""
        body = (f".reg .f32 %d<{columns // 2}>; .reg .pred %t; .reg .b32 %i; .reg .b32 %v; .reg .b64 %x<2>;\n"
                "ld.param.u64 %p, [p0];\nadd.s64 %p, %p, %o;\nld.param.u64 %q, [p1];\nadd.s64 %q, %q, %o;\n"
                "mov.u32 %s, dynamic;\nmad.lo.u32 %s, %lane, 4, %s;\nmov.u32 %i, %lane;\n"
                "fill: ld.global.b32 %v, [%p];\nst.shared.b32 [%s], %v;\nadd.s64 %p, %p, 512;\nadd.s32 %s, %s, 512;\n"
                f"add.s32 %i, %i, 128;\nsetp.lt.u32 %t, %i, {words};\n@%t bra fill;\n"
                "fence.proxy.async;\nbar.sync 0;\n" +
                "".join(f"mov.f32 %d{i}, 0f3F800000;\n" for i in range(columns // 2)) +
                f"mov.b64 %x0, {descriptors[0]};\nmov.b64 %x1, {descriptors[1]};\nsetp.eq.b32 %t, 0, 0;\n"
                f"wgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned.m64n{columns}k{depth}.f32.{kind}.{kind} "
                f"{{{names}}}, %x0, %x1, %t, 1, -1{modes};\nwgmma.commit_group.sync.aligned;\n"
                "wgmma.wait_group.sync.aligned 0;\n" +
                "".join(f"st.global.b32 [%q+{512 * i}], %d{i};\n" for i in range(columns // 2)))
        found = run("wgmma", body, [argument(image[:begin].view(np.uint32)), f"out:f32:{64 * columns}"], begin, 128)
        wanted, product = np.zeros((columns // 2, 128)), 1 - a @ b.T
        for i, thread in itertools.product(range(columns // 2), range(128)):
            # PTX ISA: row (warp % 4) * 16 + lane / 4 (+ 8), column 8 (i / 4) + 2 (lane % 4) + i % 2.
            warp, lane = divmod(thread, 32)
            wanted[i, thread] = product[16 * warp + lane // 4 + (8 if i % 4 >= 2 else 0), i // 4 * 8 + 2 * (lane % 4) + i % 2]
        expect(f"wgmma {kind} n{columns} swizzle {mode} major {major_a} {major_b}",
               np.array(found, float).reshape(wanted.shape), wanted)


def check_tensor():
    sizes, at = (48, 20), (8, 15)
    whole = np.arange(sizes[0] * sizes[1], dtype=np.uint16).reshape(sizes[1], sizes[0])
    for mode, height in itertools.product(range(4), (8, 16)):
        width = (16 << mode) // 2
        box = np.zeros((height, width), np.uint16)  # outside of the tensor is zero
        for y, x in itertools.product(range(height), range(width)):
            if at[1] + y < sizes[1] and at[0] + x < sizes[0]:
                box[y, x] = whole[at[1] + y, at[0] + x]
        # 16-byte piece j of row r; pieces of 128 bytes in all are one line of the table.
        pieces = box.reshape(height, -1, 8)
        wanted = np.zeros_like(pieces)
        for r, j in itertools.product(range(height), range(pieces.shape[1])):
            permuted = {0: j, 1: j ^ (r // 4 % 2), 2: j ^ (r // 2 % 4), 3: j ^ (r % 8)}[mode]
            wanted[r, permuted] = pieces[r, j]
        total = height * width * 2
        body = (".reg .pred %t; .reg .pred %done; .reg .b32 %b; .reg .b32 %v; .reg .b64 %k;\nld.param.u64 %q, [p1];\n"
                f"add.s64 %q, %q, %o;\nmov.u32 %s, dynamic;\nadd.s32 %b, %s, {total};\nsetp.eq.u32 %t, %lane, 0;\n"
                "@%t mbarrier.init.shared.b64 [%b], 1;\nfence.mbarrier_init.release.cluster;\nbar.sync 0;\n"
                "mov.b64 %p, p0;\ncvta.param.u64 %p, %p;\n"
                f"@%t mbarrier.arrive.expect_tx.shared.b64 %k, [%b], {total};\n"
                "@%t cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                f"[%s], [%p, {{{at[0]}, {at[1]}}}], [%b];\n"
                "wait: mbarrier.try_wait.parity.shared.b64 %done, [%b], 0;\n@!%done bra wait;\n"
                "mad.lo.u32 %s, %lane, 4, %s;\n" +
                "".join(f"ld.shared.b32 %v, [%s+{i}];\nst.global.b32 [%q+{i}], %v;\n" for i in range(0, total, 128)))
        values = ",".join(map(str, whole.ravel()))
        swizzle_bytes = (0, 32, 64, 128)[mode]
        found = run("tensor", body, [f"map:u16:{sizes[0]}x{sizes[1]}:{width}x{height}:{swizzle_bytes}:{values}",
                                     f"out:u16:{total // 2}"], total + 8,
                    parameters=".param .align 64 .b8 p0[128], .param .u64 p1")
        expect(f"tensor swizzle {mode} height {height}", np.array(found, np.uint16), wanted.ravel())


def check_boxes():
    """Boxes of 1 to 3 dimensions, partly outside, in and out again."""
    for sizes, box, at in [((40,), (16,), (32,)), ((40,), (16,), (-8,)), ((16, 6, 3), (8, 4, 2), (8, 3, 2)),
                           ((16, 6, 3), (16, 2, 2), (0, -1, -1)), ((24, 9), (8, 8), (16, -2))]:
        whole = np.arange(np.prod(sizes), dtype=np.uint16).reshape(sizes[::-1]) + 1
        moved = np.zeros(box[::-1], np.uint16)
        stored = np.zeros_like(whole)
        for place in itertools.product(*(range(extent) for extent in box[::-1])):
            source = tuple(x + offset for x, offset in zip(place, at[::-1]))
            if all(0 <= x < size for x, size in zip(source, sizes[::-1])):
                moved[place] = whole[source]
                stored[source] = whole[source]
        total, rank = moved.nbytes, len(sizes)
        coordinates = ", ".join(map(str, at))
        head = (".reg .pred %t; .reg .pred %done; .reg .b32 %b; .reg .b16 %v; .reg .b64 %k;\nld.param.u64 %q, [p1];\n"
                f"mov.u32 %s, dynamic;\nadd.s32 %b, %s, {total};\nsetp.eq.u32 %t, %lane, 0;\nmov.b64 %p, p0;\n"
                "cvta.param.u64 %p, %p;\n@!%t ret;\nmbarrier.init.shared.b64 [%b], 1;\nfence.proxy.async;\n"
                f"mbarrier.arrive.expect_tx.shared.b64 %k, [%b], {total};\n"
                f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes "
                f"[%s], [%p, {{{coordinates}}}], [%b];\nwait: mbarrier.try_wait.parity.shared.b64 %done, [%b], 0;\n"
                "@!%done bra wait;\n")
        body = head + "".join(f"ld.shared.b16 %v, [%s+{i}];\nst.global.b16 [%q+{i}], %v;\n" for i in range(0, total, 2))
        values = ",".join(map(str, whole.ravel()))
        shapes = "x".join(map(str, sizes)) + ":" + "x".join(map(str, box))
        parameters = ".param .align 64 .b8 p0[128], .param .u64 p1"
        found = run("box", body, [f"map:u16:{shapes}:0:{values}", f"out:u16:{total // 2}"], total + 8, parameters=parameters)
        expect(f"box {sizes} {at}", np.array(found, np.uint16), moved.ravel())
        # The same box to a tensor of zeros, whose bytes a plain parameter has as well.
        body = (head + "mov.b64 %k, p2;\ncvta.param.u64 %k, %k;\n"
                f"cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [%k, {{{coordinates}}}], [%s];\n"
                "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nld.param.u64 %k, [p2+8];\n" +
                "".join(f"ld.global.b16 %v, [%k+{i}];\nst.global.b16 [%q+{i}], %v;\n" for i in range(0, whole.nbytes, 2)))
        zeros = ",".join("0" * whole.size)
        found = run("box", body, [f"map:u16:{shapes}:0:{values}", f"out:u16:{whole.size}", f"map:u16:{shapes}:0:{zeros}"],
                    total + 8, parameters=parameters + ", .param .align 64 .b8 p2[128]")
        expect(f"stored box {sizes} {at}", np.array(found, np.uint16), stored.ravel())


checks = {"boxes": check_boxes, "mma": check_mma, "ldmatrix": lambda: check_ldmatrix(False), "stmatrix": lambda: check_ldmatrix(True),
          "wgmma": check_wgmma, "tensor": check_tensor}
checks[sys.argv[1]]()
print(f"{sys.argv[1]}: {checked} layouts are right")
