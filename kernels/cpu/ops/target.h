// kernels/cpu/ops/target.h: functions between VERBATIM_TARGET_BEGIN and VERBATIM_TARGET_END are compiled for the
// instruction set that it names, and nothing else is: a whole file would leave copies of inline functions that other
// processors cannot run. Whatever is included for its declarations is included before.
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
