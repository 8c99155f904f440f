# What optimized builds have against faults of memory that tests and sanitizers did not find (docs/dependencies.md,
# "Hardening"). Builds for debugging, with sanitizers or for fuzzing have none of it: they look for the same faults, and more.
option(INFLIGHT_HARDENING "Compile and link optimized builds with protections against memory faults" ON)
if(NOT INFLIGHT_HARDENING OR INFLIGHT_SANITIZERS OR INFLIGHT_FUZZERS OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  return()
endif()

# With CMAKE_POSITION_INDEPENDENT_CODE, programs are linked as such too, and load at an address that is drawn.
include(CheckPIESupported)
check_pie_supported(LANGUAGES CXX)

set(hardening -fstack-protector-strong)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND hardening -fcf-protection=full)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND hardening -mbranch-protection=standard)
endif()
set(hardening_definitions -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -D_GLIBCXX_ASSERTIONS)
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${hardening};${hardening_definitions}>")
if(INFLIGHT_CUDA)  # nvcc gives its host compiler what it does not know itself
  list(JOIN hardening "," hardening_of_host)
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${hardening_of_host}>")
endif()
add_link_options("LINKER:-z,relro,-z,now,-z,noexecstack")
