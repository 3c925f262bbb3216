# SPDX-License-Identifier: MIT
#
# What `cmake --install` lays out:
#   include/mzcache/*.h          public headers
#   lib/libmzcache.so            the core, for a host that steers its own pool
#   lib/libmzcache-llm.so        restore_generate over libllama
#   lib/libggml-mzcache.so       the plug-in that an unmodified llama.cpp host loads
#   bin/mzcache                  the command
#   bin/mzcache-mkmodel          makes models to measure speed with
#   lib/cmake/mzcache, lib/pkgconfig   for find_package(mzcache) and pkg-config
#
# All paths inside the CMake package and the .pc files are relative, so the tree may be moved and
# `cmake --install --prefix` works. The engine's libllama is not installed by us: libmzcache-llm
# sets its run path itself.
include(CMakePackageConfigHelpers)

set(MZ_INSTALL_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/mzcache")
set(MZ_INSTALL_PKGCONFIG_DIR "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/mzcache"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h")

# mz_default_rpath(target path): where an installed target looks for libraries, unless it says so
# itself. (INSTALL_RPATH_USE_LINK_PATH is of no use: it leaves out the engine, which lies below our
# own source folder.)
function(mz_default_rpath target path)
  get_target_property(rpath ${target} INSTALL_RPATH)
  if(NOT rpath)
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "${path}")
  endif()
endfunction()

foreach(target IN ITEMS mzcache mzcache-llm ggml-mzcache)
  if(TARGET ${target})
    mz_default_rpath(${target} "$ORIGIN")
    install(TARGETS ${target}
            LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
            ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  endif()
endforeach()

if(TARGET mzcache-cli)
  file(RELATIVE_PATH MZ_BIN_TO_LIB
       "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
  mz_default_rpath(mzcache-cli "$ORIGIN/${MZ_BIN_TO_LIB}")
  install(TARGETS mzcache-cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

if(TARGET mzcache-mkmodel)
  install(TARGETS mzcache-mkmodel RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/mzcacheConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/cmake/mzcacheConfig.cmake"
  INSTALL_DESTINATION "${MZ_INSTALL_CMAKE_DIR}"
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/cmake/mzcacheConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/cmake/mzcacheConfig.cmake"
              "${PROJECT_BINARY_DIR}/cmake/mzcacheConfigVersion.cmake"
        DESTINATION "${MZ_INSTALL_CMAKE_DIR}")

file(RELATIVE_PATH MZ_PC_TO_PREFIX "/${MZ_INSTALL_PKGCONFIG_DIR}" "/")
string(REGEX REPLACE "/$" "" MZ_PC_TO_PREFIX "${MZ_PC_TO_PREFIX}")
file(RELATIVE_PATH MZ_PC_TO_INCLUDE "/" "/${CMAKE_INSTALL_INCLUDEDIR}")
file(RELATIVE_PATH MZ_PC_TO_LIB "/" "/${CMAKE_INSTALL_LIBDIR}")
foreach(package IN ITEMS mzcache mzcache-llm)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/${package}.pc.in"
                 "${PROJECT_BINARY_DIR}/cmake/${package}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/cmake/${package}.pc"
          DESTINATION "${MZ_INSTALL_PKGCONFIG_DIR}")
endforeach()
