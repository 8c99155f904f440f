# What `cmake --install` puts below a prefix: the program, the public headers, libinflight.so with its CMake package and
# pkg-config file, documents and licence (docs/embedding.md), the scripts of the old guides (docs/migrating.md), the demo
# model, what deploy/ has, manual pages and completion of shells, and the program's bill of materials (scripts/sbom.py).
# scripts/packages.py makes packages of the components `program`, `library` and `plugin` of it.
#
# The library is shared: what it links (fmt, spdlog, PCRE2, ...) stays its own affair, so that a consumer needs the
# public headers and one file. It is made of the objects that the program links, and exports the functions of
# include/inflight alone (cmake/inflight.map).
include(CMakePackageConfigHelpers)

install(TARGETS inflight RUNTIME COMPONENT program)
install(FILES LICENSE README.md TYPE DOC COMPONENT program)
install(DIRECTORY docs TYPE DOC COMPONENT program)
install(DIRECTORY examples TYPE DOC COMPONENT library)

# What `inflight compat install` lays out: beside the installed program, and beside that of the build directory.
set(data "${CMAKE_INSTALL_DATADIR}/inflight")
install(DIRECTORY compat DESTINATION "${data}" COMPONENT program USE_SOURCE_PERMISSIONS PATTERN __pycache__ EXCLUDE)
install(DIRECTORY deploy DESTINATION "${data}" COMPONENT program USE_SOURCE_PERMISSIONS)
install(DIRECTORY models/demo DESTINATION "${data}" COMPONENT program PATTERN "*.py" EXCLUDE PATTERN "*.jsonl" EXCLUDE)
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/share/inflight")
file(CREATE_LINK "${CMAKE_SOURCE_DIR}/compat" "${CMAKE_BINARY_DIR}/share/inflight/compat" SYMBOLIC)
file(CREATE_LINK "${CMAKE_SOURCE_DIR}/models/demo" "${CMAKE_BINARY_DIR}/share/inflight/demo" SYMBOLIC)

# Written by the program itself: the one of the build folder, which finds its libraries; where it is for another machine, by
# the emulator.
if(NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR)
  install(CODE "
    set(prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
    set(built ${CMAKE_CROSSCOMPILING_EMULATOR} \"${CMAKE_BINARY_DIR}/bin/inflight\")
    execute_process(COMMAND_ERROR_IS_FATAL ANY
      COMMAND \${built} man --output-dir \"\${prefix}/${CMAKE_INSTALL_MANDIR}/man1\")
    set(bash_file bash-completion/completions/inflight)
    set(fish_file fish/vendor_completions.d/inflight.fish)
    set(zsh_file zsh/site-functions/_inflight)
    foreach(shell bash fish zsh)
      execute_process(COMMAND_ERROR_IS_FATAL ANY COMMAND \${built} completion \"\${shell}\" OUTPUT_VARIABLE script)
      file(WRITE \"\${prefix}/${CMAKE_INSTALL_DATADIR}/\${\${shell}_file}\" \"\${script}\")
    endforeach()" COMPONENT program)
endif()

# Made of the program as it was installed, since that has other bytes than the one in the build folder.
find_program(PYTHON3 python3)
find_program(DPKG_QUERY dpkg-query)
if(PYTHON3 AND DPKG_QUERY AND CMAKE_GENERATOR STREQUAL "Ninja")
  install(CODE "
    set(prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
    execute_process(COMMAND_ERROR_IS_FATAL ANY COMMAND \"${PYTHON3}\" \"${CMAKE_SOURCE_DIR}/scripts/sbom.py\" \"${CMAKE_BINARY_DIR}\"
      --program \"\${prefix}/${CMAKE_INSTALL_BINDIR}/inflight\"
      --output \"\${prefix}/${CMAKE_INSTALL_DOCDIR}/inflight.spdx.json\")" COMPONENT program)
endif()

if(NOT INFLIGHT_LIBRARY)
  return()
endif()

# These define what the public headers declare; what they need themselves is linked from their archives.
set(public_folders base decoding executor tokenizer chat_template loader)
list(TRANSFORM public_folders REPLACE "(.+)" "$<TARGET_OBJECTS:inflight_\\1>" OUTPUT_VARIABLE public_objects)
add_library(libinflight SHARED ${public_objects})
set(exports "${CMAKE_SOURCE_DIR}/cmake/inflight.map")
set_target_properties(libinflight PROPERTIES
  OUTPUT_NAME inflight
  EXPORT_NAME inflight
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}  # before 1.0 a minor version may change the interface
  LINK_DEPENDS "${exports}")
target_link_libraries(libinflight PRIVATE inflight_loader)
if(INFLIGHT_STATIC)  # all but the C++ library, of which a program and what it loads have one
  get_target_property(link_options libinflight LINK_OPTIONS)
  list(REMOVE_ITEM link_options -static-libstdc++ -static-libgcc)
  set_target_properties(libinflight PROPERTIES LINK_OPTIONS "${link_options}")
endif()
target_link_options(libinflight PRIVATE "LINKER:--version-script=${exports}" LINKER:--no-undefined)
if(MOLD)  # GNU ld takes fewer forms of patterns in the map, and is what a machine without mold has
  target_link_options(libinflight PRIVATE -fuse-ld=bfd)
endif()
target_compile_features(libinflight INTERFACE cxx_std_20)
target_include_directories(libinflight INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Inflight")
set(version_file "${CMAKE_CURRENT_BINARY_DIR}/InflightConfigVersion.cmake")
write_basic_package_version_file("${version_file}" COMPATIBILITY SameMinorVersion)
install(DIRECTORY include/inflight TYPE INCLUDE COMPONENT library)
install(TARGETS libinflight EXPORT inflight LIBRARY COMPONENT library)
install(EXPORT inflight NAMESPACE Inflight:: FILE InflightConfig.cmake DESTINATION "${package_dir}" COMPONENT library)
install(FILES "${version_file}" DESTINATION "${package_dir}" COMPONENT library)

file(RELATIVE_PATH prefix_from_pc "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
configure_file(cmake/inflight.pc.in inflight.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/inflight.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT library)
