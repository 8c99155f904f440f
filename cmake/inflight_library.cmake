# Builds that run once, and with sanitizers, optimize only what computes: that takes half of their time.
set(computing_libraries decoding executor fake_backend kv_cache ops ops_backends ops_cpu ops_reference scheduler tensor)
if(NOT INFLIGHT_SANITIZERS)  # whose checks make these three times as slow to optimize
  list(APPEND computing_libraries base model tokenizer)
endif()
if(INFLIGHT_STATIC)  # which is for use: also what is slow to load, to combine over ranks and to constrain by a grammar
  list(APPEND computing_libraries comm decoding_cuda gguf grammar json ops_cuda quantized)
endif()

# One folder of src/ is one library `inflight_<name>`, with its unit tests in one binary `<name>_test`.
#
#   inflight_library(kv_cache SOURCES block_pool.cc DEPS base TESTS kv_cache_test.cc)
#
# DEPS names our own folders (they become inflight_<dep>); LIBS names imported libraries. Headers need not be listed.
# TEST_DEPS and TEST_LIBS are linked by the test binary alone.
function(inflight_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS;TESTS;TEST_DEPS;TEST_LIBS" ${ARGN})
  set(target inflight_${name})
  if(ARG_SOURCES)
    add_library(${target} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} "${CMAKE_SOURCE_DIR}/include" "${CMAKE_SOURCE_DIR}/src")
  if(INFLIGHT_COMPUTING_OPTIONS AND ARG_SOURCES AND name IN_LIST computing_libraries)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${INFLIGHT_COMPUTING_OPTIONS}>)
  endif()
  list(TRANSFORM ARG_DEPS PREPEND inflight_)
  target_link_libraries(${target} ${scope} ${ARG_DEPS} ${ARG_LIBS})
  if(INFLIGHT_TESTS AND ARG_TESTS)
    list(TRANSFORM ARG_TEST_DEPS PREPEND inflight_)
    add_executable(${name}_test ${ARG_TESTS})
    # Half the time of a compilation, for code that runs once.
    target_compile_options(${name}_test PRIVATE "${unoptimized}" "${unchecked}")
    target_link_libraries(${name}_test PRIVATE ${target} ${ARG_TEST_DEPS} ${ARG_TEST_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
    add_test(NAME ${name}_test COMMAND ${name}_test)
  endif()
endfunction()

# A libFuzzer target `fuzz_<name>` from tests/fuzz/<name>_fuzz.cc. The folders it names in DEPS are compiled so that the
# fuzzer sees which branches they take; elsewhere tests would pay for it.
# Builds without fuzzers run the committed seeds through the same code, as the test binary `fuzz_<name>_test`.
function(inflight_fuzzer name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS" ${ARGN})
  list(TRANSFORM ARG_DEPS PREPEND inflight_)
  set(source "${CMAKE_SOURCE_DIR}/tests/fuzz/${name}_fuzz.cc")
  if(INFLIGHT_FUZZERS)
    foreach(target IN LISTS ARG_DEPS)
      get_target_property(options ${target} COMPILE_OPTIONS)
      if(NOT "-fsanitize=fuzzer-no-link" IN_LIST options)
        target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
      endif()
    endforeach()
    if(NOT TARGET inflight_cost_oracle)
      add_library(inflight_cost_oracle OBJECT "${CMAKE_SOURCE_DIR}/tests/fuzz/cost_oracle.cc")
    endif()
    add_executable(fuzz_${name} "${source}" $<TARGET_OBJECTS:inflight_cost_oracle>)
    set_target_properties(fuzz_${name} PROPERTIES UNITY_BUILD OFF)
    target_link_libraries(fuzz_${name} PRIVATE ${ARG_DEPS} ${ARG_LIBS})
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer -Wl,--wrap=LLVMFuzzerTestOneInput)
    add_dependencies(fuzzers fuzz_${name})
  elseif(INFLIGHT_TESTS)
    if(NOT TARGET inflight_seeds_test)
      add_library(inflight_seeds_test OBJECT "${CMAKE_SOURCE_DIR}/tests/fuzz/seeds_test.cc")
      target_compile_definitions(inflight_seeds_test PRIVATE INFLIGHT_SEEDS="${CMAKE_SOURCE_DIR}/tests/fuzz/seeds")
      target_link_libraries(inflight_seeds_test PUBLIC GTest::gtest GTest::gtest_main)
    endif()
    add_executable(fuzz_${name}_test "${source}")
    target_link_libraries(fuzz_${name}_test PRIVATE inflight_seeds_test ${ARG_DEPS} ${ARG_LIBS})
    add_test(NAME fuzz_${name}_test COMMAND fuzz_${name}_test)
  endif()
endfunction()
