# With INFLIGHT_STATIC libraries are linked from archives: all but the C library, cuBLASLt and the GPU's driver, so that one file
# runs on a host that has the CUDA runtime libraries and nothing else of ours. scripts/static_deps.sh builds the archives that
# Debian does not have; the others are in its -dev packages.
if(CMAKE_SYSROOT)  # of scripts/aarch64.sh
  set(static_deps "${CMAKE_SYSROOT}/static-deps")
  set(how "scripts/static_deps.sh ${static_deps} ${CMAKE_TOOLCHAIN_FILE}")
else()
  set(static_deps "${CMAKE_SOURCE_DIR}/build/static-deps")
  set(how scripts/static_deps.sh)
endif()
if(NOT EXISTS "${static_deps}/done")
  message(FATAL_ERROR "INFLIGHT_STATIC: ${static_deps} is not there; run ${how} first")
endif()
list(PREPEND CMAKE_PREFIX_PATH "${static_deps}")
set(CMAKE_FIND_LIBRARY_SUFFIXES .a .so)
set(Protobuf_USE_STATIC_LIBS ON)
add_link_options(-static-libstdc++ -static-libgcc)
# What nobody calls is left out, function by function; and no other library takes the place of a function of ours.
add_compile_options("$<${host_only}:-ffunction-sections;-fdata-sections;-fno-semantic-interposition>")
add_link_options(LINKER:--gc-sections)
if(INFLIGHT_CUDA)  # cuBLASLt beside the program, or where the toolkit and its container images have it
  set(hosts "x86_64-linux")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(hosts "sbsa-linux")
  endif()
  list(APPEND CMAKE_BUILD_RPATH "$ORIGIN" /usr/local/cuda/lib64 "/usr/local/cuda/targets/${hosts}/lib")
  list(APPEND CMAKE_INSTALL_RPATH ${CMAKE_BUILD_RPATH})
endif()

# The same bytes in any folder, with ccache or without. __FILE__ is an absolute path, or with ccache one that is relative to the
# build folder; of maps that fit, the last one counts.
file(RELATIVE_PATH to_source "${CMAKE_BINARY_DIR}" "${CMAKE_SOURCE_DIR}")
string(REGEX REPLACE "/$" "" to_source "${to_source}")
file(RELATIVE_PATH to_static_deps "${CMAKE_BINARY_DIR}" "${static_deps}")
set(system_maps)
if(CMAKE_SYSROOT)  # which is below the checkout: as where it is the system
  file(RELATIVE_PATH to_sysroot "${CMAKE_BINARY_DIR}" "${CMAKE_SYSROOT}")
  set(system_maps "${CMAKE_SYSROOT}/=/" "${to_sysroot}/=/")
endif()
foreach(map "${CMAKE_SOURCE_DIR}/=" "${to_source}/=" "${CMAKE_BINARY_DIR}/=" ${system_maps} "${static_deps}/=static-deps/"
            "${to_static_deps}/=static-deps/")
  add_compile_options("$<${host_only}:-fmacro-prefix-map=${map}>")
endforeach()
