# The toolchain of the preset aarch64: clang, for AArch64 Linux, with the libraries of
# build/aarch64-sysroot (scripts/setup.sh --aarch64). What is built, qemu-aarch64 runs.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH root)
set(CMAKE_SYSROOT ${root}/build/aarch64-sysroot)
if(NOT EXISTS ${CMAKE_SYSROOT}/packages)
  message(FATAL_ERROR
    "expected libraries for AArch64 in ${CMAKE_SYSROOT}, but got none: run scripts/setup.sh --aarch64")
endif()
set(CMAKE_C_COMPILER_TARGET aarch64-linux-gnu)
set(CMAKE_CXX_COMPILER_TARGET aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
# LLVM's and MLIR's are this machine's: of these the runtime and its tools take scripts alone.
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${CMAKE_SYSROOT})
