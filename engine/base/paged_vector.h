// engine/base/paged_vector.h: owns a list that grows at its end, in pages: values stay where they are, and no room
// beyond the last page is taken.
#pragma once

#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

namespace verbatim {

template <typename T>
class PagedVector {
public:
    using value_type = T;
    class const_iterator {
    public:
        using iterator_category = std::forward_iterator_tag;
        using value_type = T;
        using difference_type = std::ptrdiff_t;
        using pointer = const T*;
        using reference = const T&;

        const_iterator() = default;
        const_iterator(const PagedVector& of, size_t place) : of_(&of), place_(place) {}
        const T& operator*() const { return (*of_)[place_]; }
        const T* operator->() const { return &(*of_)[place_]; }
        const_iterator& operator++() {
            ++place_;
            return *this;
        }
        const_iterator operator++(int) { return {*of_, place_++}; }
        friend bool operator==(const const_iterator&, const const_iterator&) = default;

    private:
        const PagedVector* of_ = nullptr;
        size_t place_ = 0;
    };

    void push_back(T value) {
        if (size() == capacity()) pages_.emplace_back().reserve(kPage);
        pages_.back().push_back(std::move(value));
    }
    [[nodiscard]] T& operator[](size_t place) { return pages_[place / kPage][place % kPage]; }
    [[nodiscard]] const T& operator[](size_t place) const { return pages_[place / kPage][place % kPage]; }
    [[nodiscard]] size_t size() const {
        return pages_.empty() ? 0 : (pages_.size() - 1) * kPage + pages_.back().size();
    }
    [[nodiscard]] size_t capacity() const { return pages_.size() * kPage; }
    [[nodiscard]] const_iterator begin() const { return {*this, 0}; }
    [[nodiscard]] const_iterator end() const { return {*this, size()}; }

private:
    static constexpr size_t kPage = 64;
    std::vector<std::vector<T>> pages_;  // all full but the last
};

}  // namespace verbatim
