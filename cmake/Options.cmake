# Compile options of every target of ours: link verbatim_options.
find_package(fmt REQUIRED)
find_package(tl-expected REQUIRED)
find_package(Threads REQUIRED)

option(VERBATIM_WERROR "Warnings are errors" OFF)
set(VERBATIM_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them: address,undefined or thread")

add_library(verbatim_options INTERFACE)
target_include_directories(verbatim_options INTERFACE ${PROJECT_SOURCE_DIR})
# The exact profile: no contraction, no reassociation, IEEE-754 as written. tests/house checks every compile command.
# A designated initializer leaves out the members whose defaults it wants: that is no mistake to warn of.
target_compile_options(verbatim_options INTERFACE -ffp-contract=off -fno-fast-math -Wall -Wextra
                                                  -Wno-missing-field-initializers)
target_link_libraries(verbatim_options INTERFACE fmt::fmt tl::expected Threads::Threads)

# At -O1 GCC leaves the upper halves of vector registers in use (the pass that adds vzeroupper is among these), and
# scalar code takes up to forty times as long after AVX code has run once. Release builds have it anyway.
# And GCC collects its garbage when there is much of it: a tenth of the compile time is that, with templates as these.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(verbatim_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fexpensive-optimizations --param=ggc-min-heapsize=524288 --param=ggc-min-expand=200>)
endif()

# verbatim_computes(TARGET...): what most of the program's and the tests' time goes to. It is optimised in their build,
# too, which takes half of the tests' time away.
function(verbatim_computes)
  if(VERBATIM_SANITIZE)
    return()
  endif()
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Debug>,$<COMPILE_LANGUAGE:CXX>>:-O2>
                                             $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O3>)
  endforeach()
endfunction()

# verbatim_reports(TARGET...): reads flags, asks, compares and reports, and waits for something else most of the time.
# -O1 compiles it in two thirds of the time.
function(verbatim_reports)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
  endforeach()
endfunction()

# The headers that nearly every source includes, compiled once for every level of optimisation: a second of each
# compilation. GCC 12 crashes over a header of another level. verbatim_precompiles(KIND TARGET...): the sources of these
# libraries take them from there; KIND is `computes` or `reports` for those of the functions above, `usual` for others.
# Sources with options of their own take none.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled.cc CONTENT "// Gives a precompiled header a target.\n")
foreach(kind IN ITEMS usual computes reports)
  add_library(verbatim_precompiled_${kind} OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/precompiled.cc)
  target_link_libraries(verbatim_precompiled_${kind} PRIVATE verbatim_options)
  target_precompile_headers(verbatim_precompiled_${kind} PRIVATE
    <algorithm> <array> <charconv> <chrono> <cmath> <cstddef> <cstdint> <cstring> <deque> <filesystem> <functional>
    <limits> <map> <memory> <numeric> <optional> <set> <span> <sstream> <string> <string_view> <unordered_map>
    <utility> <variant> <vector> <fmt/format.h> <fmt/ranges.h> <tl/expected.hpp>)
endforeach()
verbatim_computes(verbatim_precompiled_computes)
verbatim_reports(verbatim_precompiled_reports)
function(verbatim_precompiles kind)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  foreach(target IN LISTS ARGN)
    target_precompile_headers(${target} REUSE_FROM verbatim_precompiled_${kind})
  endforeach()
endfunction()

if(VERBATIM_WERROR)
  target_compile_options(verbatim_options INTERFACE -Werror)
endif()
set(VERBATIM_IS_SANITIZED 0)
if(VERBATIM_SANITIZE)
  set(VERBATIM_IS_SANITIZED 1)
  # Checks of accesses that the address sanitizer makes as well, or that want a wrong cast: a third of the compile time.
  set(VERBATIM_LEFT_OUT -fno-sanitize=null,object-size,vptr,pointer-overflow)
  # The address sanitizer looks at the libraries and at what they do to the tests' memory. The tests' own code compiles
  # in half the time without it. ThreadSanitizer has to see what the tests synchronise.
  if(VERBATIM_SANITIZE MATCHES "address")
    set(VERBATIM_TEST_SANITIZE -fno-sanitize=all)
  endif()
  # GCC's flow analysis sees the sanitizers' own branches and warns of what cannot happen.
  target_compile_options(verbatim_options INTERFACE -fsanitize=${VERBATIM_SANITIZE} ${VERBATIM_LEFT_OUT}
                                                   -fno-sanitize-recover=all -fno-omit-frame-pointer
                                                   $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(verbatim_options INTERFACE -fsanitize=${VERBATIM_SANITIZE})
endif()

# ccache makes the second build of the same sources quick; nothing needs it. The precompiled header of the tests is
# cacheable only when ccache is told that its time stamps do not matter.
find_program(VERBATIM_CCACHE ccache)
if(VERBATIM_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${VERBATIM_CCACHE})
endif()
