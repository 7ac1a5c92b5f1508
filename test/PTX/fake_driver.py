# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls the driver of ptx/FakeDriver and compares its results with CUDA's.

    fake_driver.py LIBRARY
"""

import ctypes
import sys

PTX = b""".version 8.0
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry add(.param .u64 to, .param .u32 by) {
.reg .b32 %r<3>; .reg .b64 %a; ld.param.u64 %a, [to]; ld.param.u32 %r0, [by];
ld.global.b32 %r1, [%a]; add.s32 %r1, %r1, %r0; st.global.b32 [%a], %r1; }
.visible .entry pair(.param .u64 to) .reqnctapercluster 2, 1, 1 { ret; }
.visible .entry block(.param .u64 to) .reqntid 32, 1, 1 { .shared .b8 s[1024]; ret; }
"""
SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED = 0, 1, 2, 3
INVALID_DEVICE, INVALID_CONTEXT, INVALID_PTX, INVALID_HANDLE = 101, 201, 218, 400
NOT_FOUND, ILLEGAL_ADDRESS, DESTROYED, NOT_SUPPORTED, INVALID_CLUSTER = 500, 700, 709, 801, 912
MAX_DYNAMIC_SHARED, LARGE_CLUSTER = 8, 14


class Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("extents", ctypes.c_uint * 16)]


class Config(ctypes.Structure):
    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.POINTER(Attribute)), ("count", ctypes.c_uint)]


cuda = ctypes.CDLL(sys.argv[1])
Address, Handle = ctypes.c_uint64, ctypes.c_void_p


def expect(wanted, name, *arguments):
    found = getattr(cuda, name)(*arguments)
    assert found == wanted, f"expected {name} to return {wanted}, but got {found}"


def parameters(*values):
    return (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))


def launch(wanted, function, values, grid=1, block=1, shared=0, stream=None):
    expect(wanted, "cuLaunchKernel", function, grid, 1, 1, block, 1, 1, shared, stream, parameters(*values), None)


def launch_cluster(wanted, function, values, grid, cluster, id=4):
    attribute = Attribute(id, 0, (ctypes.c_uint * 16)(cluster, 1, 1))
    config = Config((grid, 1, 1), (1, 1, 1), 0, None, ctypes.pointer(attribute), 1)
    expect(wanted, "cuLaunchKernelEx", ctypes.byref(config), function, parameters(*values), None)


def read(address, wanted=SUCCESS):
    word = ctypes.c_uint32()
    expect(wanted, "cuMemcpyDtoH_v2", ctypes.byref(word), address, 4)
    return word.value


def function(module, name, wanted=SUCCESS):
    found = Handle()
    expect(wanted, "cuModuleGetFunction", ctypes.byref(found), module, name)
    return found


def open_context():
    context, count = Handle(), ctypes.c_int()
    expect(NOT_INITIALIZED, "cuDeviceGetCount", ctypes.byref(count))
    expect(INVALID_VALUE, "cuInit", 1)
    expect(SUCCESS, "cuInit", 0)
    expect(SUCCESS, "cuDeviceGetCount", ctypes.byref(count))
    assert count.value == 1
    expect(INVALID_DEVICE, "cuDeviceGet", ctypes.byref(count), 1)
    expect(INVALID_CONTEXT, "cuCtxSynchronize")
    expect(INVALID_CONTEXT, "cuDevicePrimaryCtxRelease_v2", 0)
    expect(SUCCESS, "cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    expect(INVALID_CONTEXT, "cuCtxSynchronize")
    expect(INVALID_CONTEXT, "cuCtxSetCurrent", Handle(8))
    own = Handle(8)
    expect(SUCCESS, "cuCtxGetCurrent", ctypes.byref(own))
    assert own.value is None
    expect(SUCCESS, "cuCtxSetCurrent", context)
    expect(SUCCESS, "cuCtxGetCurrent", ctypes.byref(own))
    assert own.value == context.value
    expect(INVALID_VALUE, "cuCtxGetCurrent", None)
    return context


def check_modules():
    module, log = Handle(), ctypes.create_string_buffer(b"?" * 20, 20)
    options, values = (ctypes.c_int * 2)(5, 6), (ctypes.c_void_p * 2)(ctypes.addressof(log), 20)
    expect(INVALID_PTX, "cuModuleLoadDataEx", ctypes.byref(module), b".version x", 2, options, values)
    assert log.value.startswith(b"expected") and values[1] == len(log.value) + 1 == 20, log.value
    expect(NOT_SUPPORTED, "cuModuleLoadDataEx", ctypes.byref(module), PTX, 1, (ctypes.c_int * 1)(0), values)
    expect(SUCCESS, "cuModuleLoadDataEx", ctypes.byref(module), PTX, 0, None, None)
    function(module, b"none", NOT_FOUND)
    function(Handle(8), b"add", INVALID_HANDLE)
    return module


def check_memory():
    first = Address()
    expect(INVALID_VALUE, "cuMemAlloc_v2", ctypes.byref(first), ctypes.c_size_t(0))
    expect(OUT_OF_MEMORY, "cuMemAlloc_v2", ctypes.byref(first), ctypes.c_size_t(1 << 33))
    expect(SUCCESS, "cuMemAlloc_v2", ctypes.byref(first), ctypes.c_size_t(4))
    assert read(first) == 0xffffffff
    word = ctypes.c_uint32(5)
    expect(INVALID_VALUE, "cuMemcpyHtoD_v2", first, ctypes.byref(word), 5)
    expect(INVALID_VALUE, "cuMemcpyDtoH_v2", ctypes.byref(word), Address(first.value + 1), 4)
    expect(SUCCESS, "cuMemcpyHtoD_v2", first, ctypes.byref(word), 4)
    expect(INVALID_VALUE, "cuMemFree_v2", Address(first.value + 1))
    return first


def check_launches(module, word):
    add, pair, block = (function(module, name) for name in (b"add", b"pair", b"block"))
    three = ctypes.c_uint32(3)
    launch(SUCCESS, add, (word, three))
    three.value = 90  # what a launch is given counts, not what is there when it runs
    assert read(word) == 8
    launch(INVALID_HANDLE, Handle(8), (word, three))
    launch(INVALID_HANDLE, add, (word, three), stream=Handle(8))
    launch(INVALID_VALUE, add, (word, three), grid=0)
    launch(INVALID_VALUE, add, (word, three), block=1025)
    launch(INVALID_VALUE, block, (word,), block=64)
    # More than 48 KiB of shared memory are asked for in advance; those of the kernel count.
    launch(SUCCESS, block, (word,), block=32, shared=47 * 1024)
    launch(INVALID_VALUE, block, (word,), block=32, shared=47 * 1024 + 1)
    expect(INVALID_VALUE, "cuFuncSetAttribute", block, MAX_DYNAMIC_SHARED, 227 * 1024)
    expect(NOT_SUPPORTED, "cuFuncSetAttribute", block, 0, 1)
    expect(SUCCESS, "cuFuncSetAttribute", block, MAX_DYNAMIC_SHARED, 226 * 1024)
    launch(SUCCESS, block, (word,), block=32, shared=226 * 1024)
    launch(SUCCESS, pair, (word,), grid=2)
    launch(INVALID_CLUSTER, pair, (word,), grid=3)
    launch_cluster(SUCCESS, pair, (word,), 4, 2)
    launch_cluster(INVALID_CLUSTER, pair, (word,), 4, 4)
    launch_cluster(NOT_SUPPORTED, pair, (word,), 4, 2, id=1)
    launch_cluster(INVALID_CLUSTER, block, (word,), 16, 16)
    expect(SUCCESS, "cuFuncSetAttribute", add, LARGE_CLUSTER, 1)
    launch_cluster(INVALID_CLUSTER, add, (word, three), 8, 16)
    expect(SUCCESS, "cuCtxSynchronize")


def check_maps(word):
    space = ctypes.create_string_buffer(256)
    to = ctypes.addressof(space) + -ctypes.addressof(space) % 128

    def encode(wanted, type=9, rank=2, width=64, swizzle=3, address=4096, place=to, step=1):
        expect(wanted, "cuTensorMapEncodeTiled", Handle(place), type, rank, Handle(address), (ctypes.c_uint64 * 2)(128, 8),
               (ctypes.c_uint64 * 1)(256), (ctypes.c_uint32 * 2)(width, 8), (ctypes.c_uint32 * 2)(step, step), 0, swizzle, 0, 0)

    encode(SUCCESS)
    encode(INVALID_VALUE, width=128)  # wider than its swizzle
    encode(INVALID_VALUE, address=8)
    encode(INVALID_VALUE, place=to + 8)
    encode(INVALID_VALUE, rank=6)
    encode(NOT_SUPPORTED, type=11)
    encode(NOT_SUPPORTED, step=2)


def check_failure(module, context):
    add, gone, one = function(module, b"add"), Address(), ctypes.c_uint32(1)
    expect(SUCCESS, "cuMemAlloc_v2", ctypes.byref(gone), ctypes.c_size_t(4))
    expect(SUCCESS, "cuMemFree_v2", gone)
    launch(SUCCESS, add, (gone, one))
    expect(ILLEGAL_ADDRESS, "cuCtxSynchronize")
    # The context is lost; the next one begins anew.
    launch(ILLEGAL_ADDRESS, add, (gone, one))
    expect(SUCCESS, "cuDevicePrimaryCtxRelease_v2", 0)
    expect(DESTROYED, "cuCtxSynchronize")
    expect(SUCCESS, "cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    expect(INVALID_HANDLE, "cuModuleUnload", module)


def check_capture():
    stream, graph, status = Handle(), Handle(), ctypes.c_int(7)
    expect(INVALID_HANDLE, "cuStreamIsCapturing", Handle(8), ctypes.byref(status))
    expect(SUCCESS, "cuStreamCreate", ctypes.byref(stream), 0)
    expect(INVALID_VALUE, "cuStreamIsCapturing", stream, None)
    for wanted, call, arguments in (0, "cuStreamBeginCapture_v2", (0,)), (1, "cuStreamEndCapture", (ctypes.byref(graph),)):
        expect(SUCCESS, "cuStreamIsCapturing", stream, ctypes.byref(status))
        assert status.value == wanted
        expect(SUCCESS, call, stream, *arguments)
    expect(SUCCESS, "cuGraphDestroy", graph)
    expect(SUCCESS, "cuStreamDestroy_v2", stream)


context = open_context()
module = check_modules()
word = check_memory()
check_launches(module, word)
check_maps(word)
check_capture()
expect(SUCCESS, "cuMemFree_v2", word)
expect(INVALID_VALUE, "cuMemFree_v2", word)
check_failure(module, context)
module = check_modules()
expect(SUCCESS, "cuModuleUnload", module)
expect(INVALID_HANDLE, "cuModuleUnload", module)
