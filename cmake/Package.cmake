# The .deb that scripts/package.sh makes of what is installed. The build itself
# makes no package.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sparse-opt)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The sparse-opt authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "compiler for block-sparse training")
set(CPACK_PACKAGE_DESCRIPTION
"A whole training step of PyTorch or JAX goes in, with some weights marked
 block-sparse; native code comes out whose time and memory follow the stored
 blocks. Holds the tools, the C runtime, the compiler's libraries and headers,
 and the Python package.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# dpkg-shlibdeps finds LLVM's library by a link that is of another package than the
# library; which of the two it asks for a dependency, and so whether there is one,
# differs from run to run. It reads this first.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/ShlibsLocal.cmake @ONLY CONTENT [[
file(WRITE "${CPACK_TEMPORARY_DIRECTORY}/debian/shlibs.local"
  "libLLVM @LLVM_VERSION_MAJOR@.@LLVM_VERSION_MINOR@ libllvm@LLVM_VERSION_MAJOR@ (>= 1:@LLVM_VERSION_MAJOR@.@LLVM_VERSION_MINOR@)\n")
]])
# The licences of what was linked and compiled in, where Debian has them.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/Copyright.cmake @ONLY CONTENT [[
execute_process(COMMAND_ERROR_IS_FATAL ANY COMMAND python3 -B
  "@PROJECT_SOURCE_DIR@/scripts/release/licences.py" "@PROJECT_BINARY_DIR@"
  "${CPACK_TEMPORARY_DIRECTORY}${CPACK_PACKAGING_INSTALL_PREFIX}/share/doc/@CPACK_PACKAGE_NAME@/copyright")
]])
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_BINARY_DIR}/ShlibsLocal.cmake ${PROJECT_BINARY_DIR}/Copyright.cmake)
# What is written in Python shows in no library.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "python3 (>= 3.10), python3-numpy, python3-yaml")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libmlir-22-dev, llvm-22-dev")
include(CPack)
