# Compiles a file of kernels to PTX and makes its text literals of C++:
# bsr_add_device_code(<target> <name>) of <name>.cu makes <name>.inc, which <target>
# may include. Clang does it, by whatever compiler all else is compiled; neither
# CUDA nor a GPU is needed.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(BSR_DEVICE_CLANG ${CMAKE_CXX_COMPILER} CACHE FILEPATH "The clang++ that compiles kernels to PTX")
else()
  find_program(BSR_DEVICE_CLANG NAMES clang++-22 clang++ DOC "The clang++ that compiles kernels to PTX")
endif()
set(bsr_version "none")
set(bsr_targets "")
if(BSR_DEVICE_CLANG)
  execute_process(COMMAND ${BSR_DEVICE_CLANG} -dumpversion
    OUTPUT_VARIABLE bsr_version ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${BSR_DEVICE_CLANG} --print-targets OUTPUT_VARIABLE bsr_targets ERROR_QUIET)
endif()
if(bsr_version VERSION_LESS 22 OR NOT bsr_targets MATCHES "nvptx64")
  message(FATAL_ERROR
    "expected clang++ 22 with the target nvptx64, but got ${BSR_DEVICE_CLANG} (${bsr_version}): "
    "install Debian's package clang-22, or pass -DBSR_DEVICE_CLANG=<clang++>")
endif()

set(BSR_EMBED_TEXT ${CMAKE_CURRENT_LIST_DIR}/EmbedText.cmake)
function(bsr_add_device_code target name)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/${name}.cu)
  set(made ${CMAKE_CURRENT_BINARY_DIR}/${name})
  # PTX 7.0 for sm_80 is what the driver of CUDA 11 takes, for its chips and all
  # later ones. No contraction: the same numbers as on the host. Loops are as they
  # are written, and so as long as the compiler predicts.
  add_custom_command(OUTPUT ${made}.ptx
    COMMAND ${BSR_DEVICE_CLANG} -x cuda --cuda-device-only -nocudainc -nocudalib
      --cuda-gpu-arch=sm_80 --cuda-feature=+ptx70 -Wno-unknown-cuda-version
      -std=c++20 -O2 -mllvm -disable-block-placement -ffp-contract=off -fno-unroll-loops -Wall -Wextra -Werror
      -MD -MF ${made}.d -MT ${made}.ptx -S ${source} -o ${made}.ptx
    DEPENDS ${source} DEPFILE ${made}.d VERBATIM
    COMMENT "Compiling ${name}.cu to PTX")
  add_custom_command(OUTPUT ${made}.inc
    COMMAND ${CMAKE_COMMAND} -DTEXT=${made}.ptx -DMADE=${made}.inc -P ${BSR_EMBED_TEXT}
    DEPENDS ${made}.ptx ${BSR_EMBED_TEXT} VERBATIM
    COMMENT "Embedding ${name}.ptx")
  target_sources(${target} PRIVATE ${made}.inc)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR})
endfunction()
