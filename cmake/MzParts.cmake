# SPDX-License-Identifier: MIT
# A part of the core is an object library; libmzcache.so and the test archive are made of all parts.

# mz_add_part(name source...): compile src/<name>.
function(mz_add_part name)
  add_library(mz_${name} OBJECT ${ARGN})
  target_include_directories(mz_${name} PUBLIC
    "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(mz_${name} PUBLIC Threads::Threads PkgConfig::XXHASH)
  set_property(GLOBAL APPEND PROPERTY MZ_PARTS mz_${name})
endfunction()
