# With INFLIGHT_GLIBC, a program starts with that version of the C library and later ones: it is linked with stubs that
# have nothing newer (scripts/glibc_stubs.py), and with the functions of src/old_glibc.
if(NOT INFLIGHT_STATIC)
  message(FATAL_ERROR "INFLIGHT_GLIBC: shared libraries of this system need its own C library; set INFLIGHT_STATIC too")
endif()
set(glibc_stubs "${CMAKE_BINARY_DIR}/glibc-${INFLIGHT_GLIBC}")
find_program(PYTHON3 python3 REQUIRED)
execute_process(COMMAND_ERROR_IS_FATAL ANY
  COMMAND "${PYTHON3}" "${CMAKE_SOURCE_DIR}/scripts/glibc_stubs.py" "${glibc_stubs}" --newest "${INFLIGHT_GLIBC}"
    --compiler "${CMAKE_CXX_COMPILER}")

function(inflight_link_old_glibc target)
  target_link_libraries(${target} PRIVATE inflight_old_glibc)
  # The three by name: what they had is in libc since 2.34, where older systems do not have it.
  target_link_options(${target} PRIVATE "-L${glibc_stubs}" "LINKER:--push-state,--no-as-needed,-lpthread,-ldl,-lrt,--pop-state")
  if(INFLIGHT_CUDA)  # cuBLASLt and what it loads find the C library of the system where they are, not the stubs
    target_link_options(${target} PRIVATE LINKER:--allow-shlib-undefined)
  endif()
endfunction()
