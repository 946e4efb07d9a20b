# Compile options of every target of ours: link verbatim_options.
find_package(fmt REQUIRED)
find_package(tl-expected REQUIRED)
find_package(Threads REQUIRED)

add_library(verbatim_options INTERFACE)
target_include_directories(verbatim_options INTERFACE ${PROJECT_SOURCE_DIR})
# The exact profile: no contraction, no reassociation, IEEE-754 as written.
target_compile_options(verbatim_options INTERFACE -ffp-contract=off -fno-fast-math -Wall -Wextra)
target_link_libraries(verbatim_options INTERFACE fmt::fmt tl::expected Threads::Threads)

option(VERBATIM_WERROR "Warnings are errors" OFF)
if(VERBATIM_WERROR)
  target_compile_options(verbatim_options INTERFACE -Werror)
endif()
