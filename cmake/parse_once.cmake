# The sanitizers' builds parse the headers that nearly every source includes once, not once a unit: a precompiled header
# for all targets of one kind and with the same options. Included last, when all targets are known.
set(headers_of_all <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <condition_variable> <cstdint> <cstring> <deque>
  <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <random> <set> <span> <string>
  <string_view> <thread> <unordered_map> <utility> <variant> <vector> <fmt/format.h> <fmt/ranges.h>)

function(targets_below folder found)
  get_property(targets DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
  get_property(folders DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(subfolder IN LISTS folders)
    targets_below("${subfolder}" deeper)
    list(APPEND targets ${deeper})
  endforeach()
  set(${found} ${targets} PARENT_SCOPE)
endfunction()

# Targets of the owner's type and options take the owner's precompiled header, where they have none.
function(parse_once owner)
  if(NOT TARGET ${owner})
    return()
  endif()
  get_target_property(reused ${owner} PRECOMPILE_HEADERS_REUSE_FROM)
  if(reused)
    return()
  endif()
  get_target_property(type ${owner} TYPE)
  get_target_property(options ${owner} COMPILE_OPTIONS)
  target_precompile_headers(${owner} PRIVATE ${ARGN})
  targets_below("${CMAKE_SOURCE_DIR}" targets)
  list(REMOVE_ITEM targets ${owner}
    inflight_proto inflight_kserve_stubs             # generated sources include none of these
    inflight_bench_limits kserve_grpc_clients_test)  # options of single sources and of gRPC's library are not the owner's
  foreach(target IN LISTS targets)
    get_target_property(its_type ${target} TYPE)
    get_target_property(its_options ${target} COMPILE_OPTIONS)
    get_target_property(reused ${target} PRECOMPILE_HEADERS_REUSE_FROM)
    if(its_type STREQUAL type AND its_options STREQUAL options AND NOT reused)
      target_precompile_headers(${target} REUSE_FROM ${owner})
    endif()
  endforeach()
endfunction()

if(INFLIGHT_SANITIZERS AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  parse_once(inflight_json ${headers_of_all})    # which a fuzzer watches
  parse_once(inflight_config ${headers_of_all})  # and which none does
  parse_once(base_test ${headers_of_all} <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp>)
endif()
