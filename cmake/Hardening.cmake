# What programs are built with that read files of others: what Debian's
# hardening-check asks for. Code that the compiler makes has none of it.

option(BSR_HARDENING "Build with stack protection, checked string functions and read-only relocations" ON)

# Of what is linked in this directory and below.
macro(bsr_harden_links)
  if(BSR_HARDENING)
    add_link_options(LINKER:-z,relro LINKER:-z,now)
  endif()
endmacro()

# Of what is compiled in this directory and below. Sanitizers find more, and
# checked functions need an optimizer.
macro(bsr_harden_code)
  if(BSR_HARDENING AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    add_compile_options(-fstack-protector-strong -fstack-clash-protection)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      add_compile_options(-fcf-protection)
    endif()
    add_compile_options(
      "$<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
  endif()
endmacro()
