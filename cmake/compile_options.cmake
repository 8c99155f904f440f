# Flags shared by all targets. Everything is compiled for x86-64-v2; wider instruction sets are chosen at run time, one
# translation unit each (src/ops/cpu).
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

# Checkouts in several places share what ccache remembers: paths below the checkout are hashed as relative ones.
find_program(CCACHE ccache)
if(CCACHE)
  set(compiler_launcher env "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" CCACHE_NOHASHDIR=1 "${CCACHE}")
  if(INFLIGHT_SANITIZERS)  # sources with a precompiled header (parse_once.cmake), which may hide __DATE__ and -D from ccache
    list(INSERT compiler_launcher 1 CCACHE_SLOPPINESS=pch_defines,time_macros)
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER ${compiler_launcher})
endif()

# A fifth of the time of GNU ld, where it is installed (scripts/install_deps.sh ci). Static builds are linked by GNU ld.
find_program(MOLD mold)
if(MOLD AND NOT INFLIGHT_STATIC AND NOT CMAKE_CROSSCOMPILING)
  add_link_options("$<$<LINK_LANGUAGE:CXX>:-fuse-ld=mold>")
endif()

set(host_only "$<COMPILE_LANGUAGE:CXX>")
if(CMAKE_UNITY_BUILD)  # units include sources by absolute paths, which __FILE__ would carry past ccache
  add_compile_options("$<${host_only}:-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=>")
endif()
add_compile_options("$<${host_only}:-Wall;-Wextra;-Werror;-Wno-missing-field-initializers>")
if(INFLIGHT_CUDA)
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know the dialects of nvcc 13
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${compiler_launcher})
  endif()
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Werror,-Wno-missing-field-initializers;--expt-relaxed-constexpr;-lineinfo;-Werror=cross-execution-space-call>")
  if(CMAKE_CROSSCOMPILING)  # the toolkit's headers are the same for each host (scripts/fetch_cuda.py)
    add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-ccbin=${CMAKE_CXX_COMPILER};-Xcompiler=--sysroot=${CMAKE_SYSROOT}>")
    include_directories(SYSTEM "$<$<COMPILE_LANGUAGE:CUDA>:${CUDAToolkit_INCLUDE_DIRS}>")
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # False alarms of g++ 12 on std::string's operator+ and, with sanitizers, on std::optional (GCC bugs 105651, 105562).
  add_compile_options("$<${host_only}:-Wno-restrict;-Wno-maybe-uninitialized>")
  if(CMAKE_UNITY_BUILD)  # takes each source of a unit for a header, where an anonymous namespace is a fault
    add_compile_options("$<${host_only}:-Wno-subobject-linkage>")
    # The compiler collects its garbage from half a gigabyte on: a tenth of its time.
    add_compile_options("$<${host_only}:--param=ggc-min-heapsize=524288>")
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")  # the sanitizers' compiler: what outlives its owner is an error, by name
  foreach(lifetime dangling dangling-field dangling-gsl dangling-initializer-list return-stack-address)
    add_compile_options("$<${host_only}:-Werror=${lifetime}>")
  endforeach()
endif()
set(processor_options "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(processor_options -march=x86-64-v2)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # As on x86-64: a product and a sum are rounded one after the other where they are written so, and char has a sign.
  set(processor_options -ffp-contract=off -fsigned-char)
endif()
add_compile_options("$<${host_only}:${processor_options}>")
if(INFLIGHT_CUDA AND processor_options)
  list(JOIN processor_options "," processor_options_of_host)
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${processor_options_of_host}>")
endif()
if(INFLIGHT_SANITIZERS)
  add_compile_options(-fsanitize=${INFLIGHT_SANITIZERS} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${INFLIGHT_SANITIZERS})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")  # without their time, two precompiled headers are the same for ccache
    add_compile_options("$<${host_only}:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
endif()

# For code that runs once, of builds that are made to be tested. The C library's checks (hardening.cmake) need an optimizer.
set(unoptimized "$<${host_only}:-O0;-U_FORTIFY_SOURCE>")

# For sources of tests and generated ones, a sixth of whose compilation UBSan's checks would be.
set(unchecked "")
if(INFLIGHT_SANITIZERS MATCHES "undefined")
  set(unchecked "$<${host_only}:-fno-sanitize=undefined>")
endif()
