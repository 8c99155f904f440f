# With CMAKE_UNITY_BUILD (presets united, asan, tsan, fuzz and those of releases) a target's sources are compiled two dozen to a
# unit, so that headers are parsed once for all of them: half the time of a build from nothing. Included last, when all targets
# are known.
#
# What sources keep in anonymous namespaces meets in a unit. Where two of them use one name, one stands in this list, and is
# compiled apart; scripts/build.sh says which target a new one belongs to. Renaming is better where a name says too little.
set(apart_targets
  front_end_load         # the requests of each protocol under the same names
  inflight_contract      # tables of parameters, each with its Entry and kEntries
  inflight_kserve_stubs  # generated
  inflight_ops_cuda      # kAlignment, CudaStatus
  inflight_proto         # generated
  cuda_golden_test       # each file has its cases under the same names
  cuda_ops_test          # each file has the sizes of its cases
  cuda_ops_bench         # the same
)
foreach(source bench bench_cost bench_load bench_mixes bench_throughput build chat convert inspect replay replay_print run serve shadow tokenize verify)
  list(APPEND apart_sources inflight tools/inflight/${source}.cc)  # each subcommand has its Options, kUsage and MakeSchema
endforeach()
list(APPEND apart_sources
  decoding_test               src/decoding/beam_search_test.cc                     # Ids, Probabilities, kVocab
  decoding_test               src/decoding/top_log_probs_test.cc                   # Ids
  executor_test               src/executor/validation_test.cc                      # kLimits
  inflight_builder            src/builder/model_files.cc                           # kGenerationConfig
  inflight_builder            src/builder/sharding.cc                              # kLayers
  inflight_json               src/json/json_validator.cc                           # IsBlank
  inflight_kserve_http        src/protocol/kserve/http/infer_request.cc            # Parser
  inflight_kserve_messages    src/protocol/kserve/grpc/parameters.cc               # WrongType
  inflight_model              src/model/families/fields.cc                         # kMaxInt
  inflight_model              src/model/limits.cc                                  # CheckRange
  inflight_serving_statistics src/serving/statistics/statistics.cc                 # Milliseconds
  ops_test                    tests/ops/linear_test.cc                             # Inputs
  serving_instances_test      src/serving/instances/instance_pool_test.cc          # Config, Does, Make
  serving_pipelines_test      src/serving/pipelines/pipeline_model_test.cc         # Texts
  serving_statistics_test     src/serving/statistics/iteration_stats_json_test.cc  # SomeIteration
)

# Code that runs once, of programs that are not what a build with these presets is for, is not optimized at all.
if(CMAKE_UNITY_BUILD AND NOT INFLIGHT_STATIC)
  foreach(target inflight inflight_bench_load inflight_bench_tensors inflight_kserve_stubs inflight_proto)
    if(TARGET ${target})
      target_compile_options(${target} PRIVATE "${unoptimized}")
    endif()
  endforeach()
endif()

# Set by scripts/build.sh when a unit does not compile, so that the build goes on.
set(INFLIGHT_ALSO_APART "" CACHE STRING "Targets compiled apart besides those that cmake/united.cmake lists")
if(CMAKE_UNITY_BUILD AND INFLIGHT_ALSO_APART)
  message(WARNING "compiled apart, since names in their sources meet: ${INFLIGHT_ALSO_APART}")
endif()
foreach(target IN LISTS apart_targets INFLIGHT_ALSO_APART)
  if(TARGET ${target})
    set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  endif()
endforeach()
# CMake unites CUDA sources, too, from 3.31 on: kernels' sources have constants of one name, and nvcc compiles them best
# side by side.
function(leave_cuda_apart folder)
  get_property(targets DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.cu$")
    list(TRANSFORM sources PREPEND "${folder}/" REGEX "^[^/]")
    set_source_files_properties(${sources} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
  get_property(folders DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(subfolder IN LISTS folders)
    leave_cuda_apart("${subfolder}")
  endforeach()
endfunction()
if(CMAKE_UNITY_BUILD AND INFLIGHT_CUDA)
  leave_cuda_apart("${CMAKE_SOURCE_DIR}")
endif()
while(apart_sources)
  list(POP_FRONT apart_sources target source)
  if(TARGET ${target})
    set_source_files_properties("${CMAKE_SOURCE_DIR}/${source}" TARGET_DIRECTORY ${target}
      PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endwhile()
