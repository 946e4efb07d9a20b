// reference/ops/rows.h: rows of values in memory, the shape that most ops take. A row may be part of a wider one (the
// z, x, B, C and dt of in_proj's output): consecutive rows are `stride` elements apart.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/base/check.h"

namespace verbatim::reference {

template <typename T>
struct Rows {
    T* data = nullptr;
    int64_t num_rows = 0;
    int64_t width = 0;
    int64_t stride = 0;  // elements; >= width

    [[nodiscard]] T* row(int64_t r) const { return data + r * stride; }
    // Columns [first, first + count) of every row.
    [[nodiscard]] Rows columns(int64_t first, int64_t count) const { return {data + first, num_rows, count, stride}; }
    // Rows [first, first + count).
    [[nodiscard]] Rows rows(int64_t first, int64_t count) const {
        return {data + first * stride, count, width, stride};
    }
    operator Rows<const T>() const  // NOLINT(google-explicit-constructor): as T* to const T*
        requires(!std::is_const_v<T>) {
        return {data, num_rows, width, stride};
    }
};

using FloatRows = Rows<float>;
using ConstFloatRows = Rows<const float>;

template <typename T>
Rows<T> dense_rows(T* data, int64_t num_rows, int64_t width) {
    return {data, num_rows, width, width};
}

// Checks a pointer that an op takes: present, and aligned for its type. `count` 0 allows null.
template <typename T>
void check_pointer(const T* pointer, int64_t count) {
    CHECK(count == 0 || pointer != nullptr, "null for {} elements", count);
    CHECK_EQ(reinterpret_cast<uintptr_t>(pointer) % alignof(T), 0u);
}

template <typename T>
void check_rows(const Rows<T>& rows, int64_t num_rows, int64_t width) {
    CHECK_EQ(rows.num_rows, num_rows);
    CHECK_EQ(rows.width, width);
    CHECK_GE(rows.stride, rows.width);
    check_pointer(rows.data, num_rows * width);
}

}  // namespace verbatim::reference
