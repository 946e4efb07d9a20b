// kernels/cpu/ops/target.h: owns the macros that compile functions between VERBATIM_TARGET_BEGIN and
// VERBATIM_TARGET_END, and only these, for the named instruction set. Compiling a whole file for it would emit copies
// of inline functions that other processors cannot run. Includes with declarations must precede the target.
#pragma once

#if defined(__clang__)
#define VERBATIM_PRAGMA(text) _Pragma(#text)
#define VERBATIM_TARGET_BEGIN(clang_features, gcc_features) \
    VERBATIM_PRAGMA(clang attribute push(__attribute__((target(clang_features))), apply_to = function))
#define VERBATIM_TARGET_END _Pragma("clang attribute pop")
#else
#define VERBATIM_PRAGMA(text) _Pragma(#text)
#define VERBATIM_TARGET_BEGIN(clang_features, gcc_features) \
    VERBATIM_PRAGMA(GCC push_options) VERBATIM_PRAGMA(GCC target(gcc_features))
#define VERBATIM_TARGET_END _Pragma("GCC pop_options")
#endif
